"""Holding: a lock that is held, whoever has a handle on it, thread or task."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from zkfence_receivers.words import Mode, Stamp, Stamps, Token, check_name

from ._core._attempt import Attempt
from ._core._queue import Granted
from ._errors import ForkedError, GrantReleased, LockLost

if TYPE_CHECKING:
    from ._session import Session

_log: Final = logging.getLogger("zkfence")


class State(Enum):
    HELD = auto()
    LOST = auto()
    RELEASED = auto()


class Holding:
    """What one acquisition was granted: nodes, token, and whether it still holds as far as this process knows.

    There may be many thousands of them, so what is not always needed is made when it is asked for.
    """

    __slots__ = (
        "_handle", "_handles", "_listeners", "_others", "_session", "_stamps",
        "granted", "lock_path", "owner", "reason", "state",
    )  # fmt: skip

    def __init__(
        self, session: Session, owner: object, lock_path: str, granted: Granted, others: tuple[Attempt, ...] = ()
    ) -> None:
        """``others``: what is held, and is to be left, behind the node that has the token."""
        self._session = session
        self._handle: int | None = None
        self._handles: set[int] | None = None  # more of them, where the lock is reentrant
        self._listeners: list[Callable[[], object]] | None = None
        self._stamps: dict[str, Stamps] | None = None
        self._others = others
        self.granted = granted
        self.lock_path = lock_path
        self.owner = owner
        self.reason = ""
        self.state = State.HELD
        for attempt in self.attempts:
            attempt.granted()

    @property
    def session(self) -> Session:
        return self._session

    @property
    def token(self) -> Token:
        return self.granted.token

    @property
    def lock_name(self) -> str:
        return self.granted.attempt.lock_name

    @property
    def mode(self) -> Mode:
        return self.granted.attempt.kind.mode

    @property
    def attempts(self) -> Sequence[Attempt]:
        """All nodes that are held, in the order in which they are to be left."""
        return (self.granted.attempt, *self._others)

    @property
    def paths(self) -> Iterable[str]:
        return [attempt.path for attempt in self.attempts]

    # --- is it over? --------------------------------------------------------------------------------------------

    def look(self) -> State:
        """The state, as far as this process can know at this moment."""
        if self.state is State.HELD and self._session.remaining() <= 0:
            self.lease_over()  # a process that was paused comes here before its heartbeat does
        return self.state

    def check(self) -> None:
        """Raise `LockLost`, `GrantReleased` or `ForkedError` if it is known to be over."""
        if os.getpid() != self._session.pid:
            raise ForkedError(self.lock_name)
        self.look()
        if self.state is State.RELEASED:
            raise GrantReleased(self.lock_name)
        if self.state is State.LOST:
            raise LockLost(self.lock_name, self.reason)

    def remaining(self) -> float:
        """Seconds until the deadline; 0 where it is over."""
        if self.state is not State.HELD or os.getpid() != self._session.pid:
            return 0.0
        return max(0.0, self._session.remaining())

    def when_lost(self, listener: Callable[[], object]) -> None:
        """Call ``listener`` once when it is lost, at once if it is; on any thread: must not block."""
        with self._session.changing:
            if self.state is State.HELD:
                if self._listeners is None:
                    self._listeners = []
                self._listeners.append(listener)
                return
            lost = self.state is State.LOST
        if lost:
            listener()

    def node_deleted(self, path: str) -> None:
        """One of the nodes is gone, and what may be at its path by now is somebody else's."""
        for attempt in self.attempts:
            if attempt.path == path:
                attempt.gone()
        self._lose("its node was deleted")

    def session_over(self) -> None:
        for attempt in self.attempts:
            attempt.session_lost()
        self._lose("the ZooKeeper session is over")

    def lease_over(self) -> None:
        """ZooKeeper may have ended the session by now. If it has not, the nodes are still there until the release, or
        until the owner acquires again."""
        self._session.watch_no_more(self)
        for attempt in self.attempts:
            attempt.connection = None  # no more told of its node's deletion, so that the release has to look first
        self._lose("ZooKeeper has not answered in time, and may have ended the session")

    def _lose(self, reason: str) -> None:
        with self._session.changing:
            if self.state is not State.HELD:
                return
            self.state, self.reason = State.LOST, reason
            listeners, self._listeners = self._listeners or (), None
        _log.warning("lock %r, token %s is lost: %s", self.lock_name, self.token.dotted, reason)
        for listener in listeners:
            self._tell(listener)

    def _tell(self, listener: Callable[[], object]) -> None:
        """One that fails, for want of a thread for instance, keeps neither the others nor other grants from being
        told."""
        try:
            listener()
        except Exception:
            _log.exception("a listener cannot be told that lock %r is lost", self.lock_name)

    # --- handles ------------------------------------------------------------------------------------------------

    def take(self, handle: object) -> bool:
        """One more handle; tells whether it still holds."""
        with self._session.changing:
            if self.state is not State.HELD:
                return False
            if self._handle is None:
                self._handle = id(handle)
            else:
                self._handles = {*(self._handles or ()), id(handle)}
            return True

    def give_back(self, handle: object) -> bool:
        """One handle less. Tells whether none is left: then it holds no more, and the nodes are to be left.

        May be said again, after an interrupt at any line of it, with the same answer.
        """
        with self._session.changing:
            if self._handle == id(handle):
                self._handle = None
            elif self._handles:
                self._handles.discard(id(handle))
            if self._handle is not None or self._handles:
                return False
            if self.state is State.HELD:  # what was lost stays lost
                self.state = State.RELEASED
            self._listeners = None
            return True

    # --- stamps -------------------------------------------------------------------------------------------------

    def stamps(self, resource: str) -> Stamps:
        """The one counter of this token's requests on ``resource``."""
        check_name(resource, "resource")
        with self._session.changing:
            if self._stamps is None:
                self._stamps = {}
            stamps = self._stamps.get(resource)
            if stamps is None:
                granted = self.granted
                lock_id = f"{granted.namespace_id}/{granted.attempt.lock_name}"
                op = 1 if self.mode is Mode.WRITE else None  # reads carry no number
                first = Stamp(granted.token, lock_id, granted.attempt.guid, self.mode, op)
                stamps = self._stamps[resource] = Stamps(first, self.check)
            return stamps
