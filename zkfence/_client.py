"""connect: a started client that zkfence likes best. Any other started KazooClient works too."""

from __future__ import annotations

import logging
import math
import threading
import time
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from ssl import SSLContext
from types import TracebackType
from typing import Any, Final, Self

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import CloseInstance, Create, Create2, Sync
from kazoo.protocol.states import KazooState, KeeperState

from ._connection import _lifetime
from ._connection._contract import breaches
from ._connection._discretion import DiscreetLogger
from ._connection._ending import Stopped
from ._connection._ending_connection import EndingConnection
from ._connection._handler import Handler
from ._connection._hosts import check_hosts
from ._connection._loop import Connection
from ._connection._negotiation import Negotiation, follow
from ._connection._result import Result
from ._connection._tls import File, tls_context
from ._errors import AccessDenied, NotConnected

_log: Final = logging.getLogger("zkfence")

# kazoo's own pauses grow to a minute: a session of ten seconds would be lost although the servers are back.
_RECONNECT: Final = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}
_GRACE: Final = 2.0  # seconds that a server has to confirm the end of a session
_MARGIN: Final = 1.0  # and the client's own thread to notice
_LONGEST: Final = 2**31 / 1000 - 1  # seconds; milliseconds are a signed integer of four bytes on the wire

_OTHER_NAMES: Final = {
    "auth_data": "auth",
    "sasl_options": "sasl",
    "timeout": "session_timeout",
    "use_ssl": "tls",
    "verify_certs": "verify",
}


class Client(KazooClient):
    """A KazooClient whose connection is cheap, and which ends quickly: what `connect` returns.

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
        """``timeout`` is the session's, in seconds; ``options`` are KazooClient's. Not started: see `connect`."""
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
        refusal = _REFUSALS.get(self._state)
        if refusal is not None:
            async_object.set_exception(refusal())
            return False
        if self._cheap and type(request) in _INWARD and isinstance(async_object, Result):
            async_object.inward = True
        try:
            self._queue.append((request, async_object))
        finally:
            if not self._ring():
                async_object.set_exception(ConnectionClosedError("Connection has been closed"))
        return None

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
        self._lay_connection()


# kazoo's client gives these a result of its own, and passes the answer on to that of the user.
_INWARD: Final = (Create, Create2, Sync)

_REFUSALS: Final[dict[str, Callable[[], Exception]]] = {
    KeeperState.AUTH_FAILED: AuthFailedError,
    KeeperState.CLOSED: lambda: ConnectionClosedError("Connection has been closed"),
    KeeperState.EXPIRED_SESSION: SessionExpiredError,
}


def connect(
    hosts: str,
    *,
    session_timeout: float = 10.0,
    connect_timeout: float = 15.0,
    auth: Sequence[tuple[str, str]] = (),
    sasl: Mapping[str, str] | None = None,
    tls: bool = False,
    ca: File | None = None,
    certfile: File | None = None,
    keyfile: File | None = None,
    keyfile_password: str | None = None,
    check_hostname: bool = True,
    verify: bool = True,
    read_only: bool = False,
    **options: Any,
) -> Client:
    """Connect to an ensemble.

    ``hosts`` is ZooKeeper's connection string, ``host:port,host:port/chroot``. ``session_timeout`` (seconds) is how
    long a worker may be silent before it loses its locks; the servers clamp it to what they allow, and the client's
    ``negotiated_timeout`` is what they agreed to.

    ``auth`` are ZooKeeper's credentials, such as ``[("digest", "user:secret")]``; ``sasl`` the options of pure-sasl,
    as KazooClient takes them. Neither is ever logged.

    ``tls``: talk TLS (1.2 or later), to servers whose certificate is for the host name that ``hosts`` says
    (``check_hostname``) and signed by ``ca``, a PEM file or a directory, or else by an authority that the system
    trusts. ``certfile`` and ``keyfile`` (PEM, perhaps one file) are the client's own certificate. ``verify=False``
    trusts everybody.

    ``read_only``: be content with a server that has lost its quorum, which answers reads. ``options`` go to
    KazooClient as they are: ``default_acl``, ``randomize_hosts``, ``connection_retry``, ``logger`` and so on.

    Raises ValueError or TypeError for what cannot be meant, before anything happens; `NotConnected`, with the cause, if
    no server has answered within ``connect_timeout`` seconds; `AccessDenied` if they refuse the credentials.
    """
    for name in options:
        if name in _OTHER_NAMES:
            raise TypeError(f"connect() calls it {_OTHER_NAMES[name]}=, not {name}=")
    if "handler" in options:
        raise TypeError("connect() brings its own handler; for another one, start a KazooClient of your own")
    check_hosts(hosts)
    _check_seconds("session_timeout", session_timeout, _LONGEST)
    _check_seconds("connect_timeout", connect_timeout, threading.TIMEOUT_MAX)
    secure = {"ca": ca, "certfile": certfile, "keyfile": keyfile, "keyfile_password": keyfile_password}
    if not tls and any(value is not None for value in secure.values()):
        raise ValueError(f"{', '.join(name for name, value in secure.items() if value is not None)}: say tls=True too")
    client = Client(
        hosts,
        session_timeout,
        tls=tls_context(
            ca=ca,
            certfile=certfile,
            keyfile=keyfile,
            keyfile_password=keyfile_password,
            check_hostname=check_hostname,
            verify=verify,
        )
        if tls
        else None,
        auth_data=_checked_auth(auth),
        sasl_options=dict(sasl) if sasl is not None else None,
        read_only=read_only,
        **{"connection_retry": _RECONNECT, **options},
    )
    try:
        client.start(timeout=connect_timeout)
    except (KazooTimeoutError, AuthFailedError, ConnectionLoss, SessionExpiredError) as error:
        failure = client._connection.last_failure
        cause = failure[1] if failure else error
        if isinstance(error, AuthFailedError) or isinstance(cause, AuthFailedError):
            raise AccessDenied("ZooKeeper refuses the credentials of this client: check auth= or sasl=") from error
        raise NotConnected(
            f"no ZooKeeper server answered at {hosts} within {connect_timeout:g} s{_told(failure)}"
        ) from cause
    return client


def _told(failure: tuple[str, Exception] | None) -> str:
    """The last failure, in words."""
    if failure is None:
        return ""
    server, error = failure
    why: BaseException = error.__context__ if isinstance(error.__context__, OSError) else error
    if isinstance(why, KazooTimeoutError | Stopped):
        return f". The last try: {server} said nothing; does it hang, is a firewall there, or does it want TLS?"
    return f". The last try: {server}: {why}"


def _check_seconds(name: str, value: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is in seconds, a number, not {value!r}")
    if not (math.isfinite(value) and 0 < value <= most):
        raise ValueError(f"{name} is in seconds, more than 0 and finite, not {value!r}")


def _checked_auth(auth: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    given: object = auth
    checked = []
    for pair in given if isinstance(given, Iterable) else [given]:
        match pair:
            case (str() as scheme, str() as credential):
                checked.append((scheme, credential))
            case _:  # what it is instead is not told: it may be a secret
                raise TypeError('auth is a list of pairs of texts, such as [("digest", "user:secret")]')
    return checked


_warned = False


def _warned_of(found: list[str]) -> bool:
    global _warned
    if found and not _warned:
        _warned = True
        _log.warning(
            "this kazoo is not one that zkfence knows (%s): its clients work, and are slower", "; ".join(found)
        )
    return bool(found)
