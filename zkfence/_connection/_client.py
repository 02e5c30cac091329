"""Client: kazoo's client, with a connection of ours."""

from __future__ import annotations

import logging
import time
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from ssl import SSLContext
from types import TracebackType
from typing import Any, Final, Self

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import CloseInstance, Create, Create2, Sync
from kazoo.protocol.states import KazooState, KeeperState

from . import _lifetime
from ._contract import breaches
from ._discretion import DiscreetLogger
from ._ending_connection import EndingConnection
from ._handler import Handler
from ._loop import Connection
from ._negotiation import Negotiation, follow
from ._result import Result

_log: Final = logging.getLogger("zkfence")

_GRACE: Final = 2.0  # seconds that a server has to confirm the end of a session
_MARGIN: Final = 1.0  # and the client's own thread to notice


class Client(KazooClient):
    """A KazooClient whose connection is cheap, and which ends quickly: what `zkfence.connect` returns.

    A context manager: leaving it ends the session, and with it every lock that it holds. So does the normal end of the
    process. A forked child has no part in it: there the client is a closed one.
    """

    handler: Handler

    def __init__(
        self,
        hosts: str,
        timeout: float = 10.0,
        *,
        tls: SSLContext | None = None,
        logger: logging.Logger | None = None,
        **options: Any,
    ) -> None:
        """``timeout`` is the session's, in seconds; the others are KazooClient's. It is not started."""
        super().__init__(
            hosts=hosts,
            timeout=timeout,
            handler=Handler(tls),
            logger=DiscreetLogger(logger or logging.getLogger("kazoo.client")),
            use_ssl=tls is not None,
            **options,
        )
        self._sasl_options = self._connection.sasl_options
        self._negotiation = Negotiation(warn=True)
        self._cheap = not _warned_of(breaches(self))
        self._lay_connection()

    def _lay_connection(self) -> None:
        retry = self._conn_retry.copy()
        kind = Connection if self._cheap else EndingConnection
        self._connection: EndingConnection = kind(self, retry, self.logger, self._sasl_options)
        follow(self, self._negotiation)

    @property
    def negotiated_timeout(self) -> float | None:
        """The session timeout, in seconds, that the servers have agreed to; ``None`` before the first connect.

        They allow only what their ``minSessionTimeout`` and ``maxSessionTimeout`` allow; a wish that they change is
        logged as a warning. It is told anew at each connect, before anybody hears that the client is connected.
        """
        return self._negotiation.timeout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            self.close()

    # --- beginning ------------------------------------------------------------------------------------------------

    def start(self, timeout: float = 15.0) -> None:
        """Connect. Raises the handler's timeout exception after ``timeout`` seconds without success, and kazoo's
        AuthFailedError if the servers refuse the credentials."""
        deadline = time.monotonic() + timeout
        try:
            if not self.start_async().wait(timeout):
                raise KazooTimeoutError("Connection time-out")
            if self.chroot or self.auth_data or self._sasl_options:
                # kazoo says that it is connected, and authenticates then.
                there = self.exists_async("/").get(timeout=max(deadline - time.monotonic(), 0))
                if there is None:
                    warnings.warn("the chroot does not exist; create it before normal use", stacklevel=2)
        except BaseException:
            self._end(grace=0)
            self.close()
            raise

    def start_async(self) -> Any:
        live = super().start_async()
        _lifetime.started(self)
        return live

    # --- requests -------------------------------------------------------------------------------------------------

    def _call(self, request: Any, async_object: Any) -> bool | None:
        """Put a request into the queue, as kazoo does. A signal handler may raise at any of these lines; kazoo's own
        method would take that for the end of the connection."""
        if self._cheap and type(request) in _INWARD and isinstance(async_object, Result):
            async_object.inward = True
        return None if self.call_all([(request, async_object)]) else False

    def call_all(self, calls: Sequence[tuple[Any, Any]]) -> bool:
        """Put several requests, each with its result, into the queue with one ring, so that they leave together. Tells
        whether they are taken."""
        refusal = _REFUSALS.get(self._state)
        if refusal is None:
            try:
                self._queue.extend(calls)
            finally:
                if not self._ring():
                    for _, result in calls:
                        result.set_exception(ConnectionClosedError("Connection has been closed"))
            refusal = _REFUSALS.get(self._state)
            if refusal is None:
                return True
            for call in calls:  # since the first look: whoever answers what is queued may have been there before
                with suppress(ValueError, IndexError):
                    self._queue.remove(call)  # nor is it to be sent in the next session
        for _, result in calls:
            if not result.ready():
                result.set_exception(refusal())
        return False

    def _ring(self) -> bool:
        bell = self._connection._write_sock
        if bell is None:
            return False
        try:
            bell.send(b"\0")
        except OSError:
            return False
        return True

    # --- ending ---------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the session on the server, and the client. Its locks go at once.

        Where the server does not answer, it gives up after about two seconds, whatever the session timeout is: the
        session and its locks then last until the servers find out.
        """
        self._end(_GRACE)

    def _end(self, grace: float) -> None:
        if self.ask_to_end(grace):
            deadline = time.monotonic() + grace + _MARGIN
            self.handler.stop()
            self.await_end(deadline)

    def ask_to_end(self, grace: float) -> bool:
        """Have the session closed, in ``grace`` seconds at most. Does not wait. ``False``: it is closed already."""
        if self._stopped.is_set():
            return False
        try:
            self._stopped.set()
        finally:
            # Where there has never been a session, there is nothing to tell the servers.
            self.handler.ending.order(grace if self._session_id else 0)
            self._queue.append((CloseInstance, None))
            self._ring()
        return True

    def await_end(self, deadline: float) -> None:
        """Wait until the connection has ended, until ``deadline`` (monotonic) at most."""
        if not self._connection.stop(max(deadline - time.monotonic(), 0)):
            _log.warning("a ZooKeeper client could not be stopped in time: its thread goes on until it can end")

    def forget(self) -> None:
        """In a forked child: become a client that was never started. The session, the threads and what the threads
        had locked are the parent's."""
        self._connection.disown()
        self.handler.forget()
        for event in ("_live", "_stopped", "_writer_stopped"):
            setattr(self, event, self.handler.event_object())
        self._stopped.set()
        self._writer_stopped.set()
        self._state, self.state = KeeperState.CLOSED, KazooState.LOST
        self._queue, self._pending = deque(), deque()
        self._data_watchers, self._child_watchers = defaultdict(set), defaultdict(set)
        self._reset_session()
        self.last_zxid = 0
        self._negotiation = Negotiation(warn=True)
        self._lay_connection()


# kazoo's client gives these a result of its own, and passes the answer on to that of the user.
_INWARD: Final = (Create, Create2, Sync)

_REFUSALS: Final[dict[str, Callable[[], Exception]]] = {
    KeeperState.AUTH_FAILED: AuthFailedError,
    KeeperState.CLOSED: lambda: ConnectionClosedError("Connection has been closed"),
    KeeperState.EXPIRED_SESSION: SessionExpiredError,
}


_warned = False


def _warned_of(found: list[str]) -> bool:
    global _warned
    if found and not _warned:
        _warned = True
        _log.warning(
            "this kazoo is not one that zkfence knows (%s): its clients work, and are slower", "; ".join(found)
        )
    return bool(found)
