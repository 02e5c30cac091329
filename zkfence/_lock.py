"""FencedLock: the exclusive lock."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Final

from kazoo.client import KazooClient
from kazoo.security import ACL

from zkfence_receivers.words import check_name

from ._core._acquiring import Acquisition, CounterPath
from ._core._attempt import Attempt
from ._core._layout import CEILING, MAX_CONTENDER_BYTES, Layout, dump
from ._errors import LockTimeout, NotConnected
from ._exposure import tell_if_exposed
from ._grant import Grant
from ._session import Session
from ._threads import DeadlinePassed, Driver, leave_later, leave_now


class FencedLock:
    """An exclusive lock on ZooKeeper whose every grant carries a fencing token.

    Guaranteed: tokens of one lock rise from grant to grant, over crashes, restarts, deletion of the lock's nodes, and
    the end of ZooKeeper's counter. Contenders are served in the order in which ZooKeeper numbered them. An acquisition
    that does not end in a grant leaves no node behind.

    Not guaranteed: that a holder *knows* in time that it holds no more. A paused worker may act after its lease; claim
    the resource at a receiver, which refuses it.

    A lock object does no I/O until it is used, and threads may share it: each acquisition is a contender of its own.
    The recipe is ZooKeeper's own ("ZooKeeper Recipes and Solutions", Locks), with a token and without its known holes.
    """

    _ceiling: int = CEILING  # lower in tests of the roll

    def __init__(
        self,
        client: KazooClient,
        name: str,
        *,
        namespace: str = "/zkfence",
        info: str = "",
        acl: Sequence[ACL] | None = None,
    ) -> None:
        """``name``: any text up to 255 bytes of UTF-8. ``namespace``: an absolute path; made when it is first needed.
        ``info``: a short text for people, shown with the contender. ``acl``: for everything that is created; kazoo's
        default where it is not given.

        Raises `InvalidName`.
        """
        if not isinstance(client, KazooClient):
            raise TypeError(f"a lock needs a KazooClient first, such as zkfence.connect() makes, not {client!r}")
        self._session = Session.of(client)
        self._layout = Layout(namespace)
        self._info = info
        self._acl = acl
        self._memory: CounterPath | None = None
        self._entered = threading.local()  # a thread's `with` releases what that thread was granted
        self.name: Final[str] = check_name(name, "lock")
        if len(self._contender("0" * 32)) > MAX_CONTENDER_BYTES:
            raise ValueError(f"info is too long: a contender's data has at most {MAX_CONTENDER_BYTES} bytes")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} in {self._layout.namespace}>"

    def acquire(self, *, timeout: float | None = None) -> Grant:
        """Wait for the lock, in line.

        ``timeout`` is in seconds and counts for the whole call; ``None`` waits for ever, 0 tries once. Raises
        `LockTimeout` at the deadline, `NotConnected` where the client is not started or closed, and leaves nothing
        behind whatever is raised. A session that is lost while it waits is replaced by the client's next one, at the
        end of the line.

        Not reentrant: a thread that holds the lock would wait for itself. Not to be called from a kazoo watch callback,
        which would have to wake it.
        """
        if timeout is None:
            grant = self._acquire(None, wait=True)
            assert grant is not None
            return grant
        if not timeout >= 0:  # nor NaN
            raise ValueError(f"timeout is in seconds, 0 or more, not {timeout}")
        try:
            if timeout == 0:
                grant = self.try_acquire()
            else:
                grant = self._acquire(self._session.now() + min(timeout, threading.TIMEOUT_MAX), wait=True)
        except DeadlinePassed:
            grant = None
        if grant is None:
            raise LockTimeout(self.name, timeout)
        return grant

    def try_acquire(self) -> Grant | None:
        """The lock if it is free now, ``None`` if somebody holds it or waits for it.

        Raises `NotConnected` if ZooKeeper does not answer within the session timeout.
        """
        try:
            return self._acquire(self._session.now() + self._session.session_timeout, wait=False)
        except DeadlinePassed:
            raise NotConnected("ZooKeeper did not answer within the session timeout; is the ensemble up?") from None

    def _acquire(self, deadline: float | None, *, wait: bool) -> Grant | None:
        self._session.check_usable(self.name)
        guid = uuid.uuid4().hex
        attempt = Attempt(self._layout, self.name, guid, self._contender(guid))
        acquisition = Acquisition(
            attempt,
            self._session,
            self._memory,
            fresh_namespace_id=uuid.uuid4().hex,
            wait=wait,
            ceiling=self._ceiling,
        )
        try:
            with Driver(self._session, deadline, self._acl) as driver:
                try:
                    granted = driver.run(acquisition.run())
                finally:
                    if self._memory is None and acquisition.memory is not None:
                        tell_if_exposed(self._session.client, self._layout, self._acl)
                    self._memory = acquisition.memory
                if granted is not None:
                    grant = Grant(self._session, attempt, granted)
                    self._session.hold(grant, granted.session_id)
                    if driver.woken:  # something changed before the grant was being told
                        self._session.run_errand(grant._verify)
                    return grant
            leave_now(self._session, attempt)
        except BaseException:
            leave_later(self._session, attempt)
            raise
        return None

    def _contender(self, guid: str) -> bytes:
        return dump(guid=guid, host=socket.gethostname(), pid=os.getpid(), info=self._info, since=round(time.time(), 3))

    def __enter__(self) -> Grant:
        grants: list[Grant] = self._entered.__dict__.setdefault("grants", [])
        grants.append(self.acquire())
        return grants[-1]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        grants: list[Grant] = self._entered.grants
        try:
            grants[-1].release()
        finally:
            grants.pop()
