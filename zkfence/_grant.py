"""Grant: a lock that is held, and its fencing token."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from enum import Enum, auto
from types import TracebackType
from typing import Final, NoReturn, Self

from zkfence_receivers.words import Mode, Refused, StaleToken, Stamp, Stamps, Token, check_name

from ._core._acquiring import Granted
from ._core._attempt import Attempt
from ._diagnosis import diagnose
from ._errors import ForkedError, GrantReleased, LockLost
from ._session import Session
from ._threads import is_there, leave_later, leave_now

_log: Final = logging.getLogger("zkfence")


class _State(Enum):
    HELD = auto()
    LOST = auto()
    RELEASED = auto()


class Grant:
    """One grant of one lock. A context manager: leaving it releases the lock.

    ``token`` is larger than that of every earlier grant of the same lock. That the grant still *holds* can never be
    known for sure: `check` and `lost` tell as soon as this process can know, and may be late. The promise is the
    receiver's: claim the resource there, and write through the handle.
    """

    def __init__(self, session: Session, attempt: Attempt, granted: Granted) -> None:
        self._session = session
        self._attempt = attempt
        self._pid = os.getpid()
        self._state = _State.HELD
        self._reason = ""
        self._callbacks: list[Callable[[Grant], object]] = []
        self._changing = threading.Lock()
        self._stamps: dict[str, Stamps] = {}
        self._lock_id = f"{granted.namespace_id}/{attempt.lock_name}"
        self.path = granted.path
        self.token: Final[Token] = granted.token
        self.lock_name: Final[str] = attempt.lock_name
        self.holder: Final[str] = attempt.guid
        self.lost = session.client.handler.event_object()
        """Set when the grant is known to be lost; an event of the client's handler."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<Grant of {self.lock_name!r}, token {self.token.dotted}, {self._state.name.lower()}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a grant belongs to its session and cannot be pickled; send grant.stamp(resource) instead")

    def release(self) -> None:
        """Give the lock back: delete exactly the own node, and wait for the answer, for one session timeout at most.

        May be called again, and after a loss: then nothing happens. What cannot be confirmed goes on in the background.
        In a forked child it does nothing: the grant is the parent's.
        """
        if os.getpid() != self._pid:
            return
        try:
            with self._changing:
                if self._state is _State.RELEASED:
                    return
                if self._state is _State.LOST:
                    self._attempt.gone()  # what may be at its path by now is somebody else's
                self._state = _State.RELEASED
            self._session.drop(self)
            leave_now(self._session, self._attempt)
        except BaseException:  # Ctrl-C, say, at any of these lines
            leave_later(self._session, self._attempt)
            raise

    def check(self) -> None:
        """Raise `LockLost`, `GrantReleased` or `ForkedError` if the grant is known to be over.

        Returning proves nothing: it can be stale the moment it returns.
        """
        if os.getpid() != self._pid:
            raise ForkedError(self.lock_name)
        if self._state is _State.RELEASED:
            raise GrantReleased(self.lock_name)
        if self._state is _State.LOST:
            raise LockLost(self.lock_name, self._reason)

    def on_lost(self, callback: Callable[[Grant], object]) -> None:
        """Call ``callback(grant)`` once when the grant is lost, in a thread of its own; at once if it is lost already.

        It may release, acquire, and call ZooKeeper. It is not called after a release.
        """
        with self._changing:
            if self._state is _State.HELD:
                self._callbacks.append(callback)
                return
            lost = self._state is _State.LOST
        if lost:
            self._session.client.handler.spawn(self._call, callback)

    def stamp(self, resource: str, *, mode: Mode = Mode.WRITE) -> Stamp:
        """A stamp for one request on ``resource``, to be sent to a service that has the receiver.

        Each write stamp has a number of its own. Send one request at a time per resource: a later one that overtakes
        makes the receiver refuse the earlier one. Raises what `check` raises.
        """
        stamps = self.stamps(resource)
        return stamps.reading() if mode is Mode.READ else stamps.take()

    def stamps(self, resource: str) -> Stamps:
        """The one counter of this grant's requests on ``resource``; what a receiver asks for."""
        check_name(resource, "resource")
        with self._changing:
            stamps = self._stamps.get(resource)
            if stamps is None:
                first = Stamp(self.token, self._lock_id, self.holder, Mode.WRITE, 1)
                stamps = self._stamps[resource] = Stamps(first, self.check)
        return stamps

    def diagnose(self, error: StaleToken) -> Refused:
        """What the refusal of this grant's claim means: `TokenRegressed` if ZooKeeper confirms that the grant still
        holds the lock, for then nobody can have had a later token; otherwise, and where that is not certain within
        five seconds, ``error`` itself. Receivers ask.
        """
        if os.getpid() != self._pid or self._state is not _State.HELD or error.stamp.holder != self.holder:
            return error
        return diagnose(self._session, self._attempt, error)

    def _verify(self) -> None:
        if not is_there(self._session, self.path, self._attempt.czxid):
            self._session.drop(self)
            self._lose("its node was deleted")

    def _lose(self, reason: str) -> None:
        with self._changing:
            if self._state is not _State.HELD:
                return
            self._state, self._reason = _State.LOST, reason
            callbacks, self._callbacks = self._callbacks, []
        self.lost.set()
        _log.warning("lock %r, token %s is lost: %s", self.lock_name, self.token.dotted, reason)
        for callback in callbacks:
            self._session.client.handler.spawn(self._call, callback)

    def _call(self, callback: Callable[[Grant], object]) -> None:
        try:
            callback(self)
        except Exception:
            _log.exception("an on_lost callback of lock %r failed", self.lock_name)
