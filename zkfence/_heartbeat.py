"""Heartbeat: proves a session again and again, for all its locks at once, and tells them when it no longer can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ._bell import Bell
from ._core._operations import Check, Multi
from ._kazoo import Answers
from ._landing import is_from_leader

if TYPE_CHECKING:
    from ._session import Session

# The lightest quorum write: a transaction that only looks. Any answer will do, a refusal too: it came from the leader.
_BEAT: Final = (Multi((Check("/"),)),)
_CHECKS: Final = 6  # per session timeout, at least
_SHORTEST: Final = 0.001  # seconds between two looks at a deadline that is about to pass


class Heartbeat:
    """A thread (of the client's handler) that beats while somebody holds or waits.

    It rests when nobody does, and ends when nobody has for a session timeout.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._bell = Bell(session.client.handler)
        self._is_running = False
        self._is_resting = False
        self._beats_from = 0.0  # whoever wakes it is about to write something
        self._under_way: tuple[int, Answers] | None = None

    def start(self) -> None:
        """Somebody is about to hold or to wait. Cheap where it runs."""
        if self._is_running and not self._is_resting:
            return
        session = self._session
        with session.changing:
            self._beats_from = session.now() + session.session_timeout / _CHECKS / 2
            self._is_resting = False
            if self._is_running:
                self._bell.ring()
                return
            self._is_running = True
        try:
            session.client.handler.spawn(self._run)
        except BaseException:
            self._is_running = False
            raise

    def connection_changed(self) -> None:
        """Look again, now. Must not block."""
        self._bell.ring()

    def _run(self) -> None:
        try:
            self._live()
        except BaseException:
            self._is_running = False  # whoever comes next starts it anew
            raise

    def _live(self) -> None:
        session = self._session
        used_at = session.now()
        while True:
            now = session.now()
            if session.in_use:
                used_at = now
            elif session.closed or now - used_at > session.session_timeout:
                with session.changing:
                    if self._rest():
                        self._is_running = False
                        return
            if now >= self._due_at() and not self._rest():
                self._beat(now)
            self._lose()
            self._bell.wait(self._pause(used_at))

    def _due_at(self) -> float:
        return max(self._session.beat_due_at(), self._beats_from)

    def _beat(self, now: float) -> None:
        """Send a beat, unless the last one is still under way; the answer is not waited for."""
        session = self._session
        if self._under_way is not None:
            connection, answers = self._under_way
            if not answers.complete and connection == session.connection:
                return
            self._under_way = None
        if not session.ready:
            return
        session_id = session.session_id

        def answered(answers: Answers) -> None:
            (result,) = session.kazoo.results(_BEAT, answers)
            if session.session_id == session_id and is_from_leader(result):
                session.proved(now)
            self._bell.ring()

        connection = session.connection
        self._under_way = (connection, session.kazoo.send(_BEAT, None, answered))

    def _rest(self) -> bool:
        """Rest, unless somebody holds or waits; tells whether it does."""
        self._is_resting = True  # first, so that whoever begins after the look below sees it, and wakes us
        if self._session.in_use:
            self._is_resting = False
            return False
        self._session.idle()
        return True

    def _lose(self) -> None:
        """Tell every grant when the lease has run out."""
        session = self._session
        if session.remaining() > 0:
            return
        held = session.held
        if session.remaining() <= 0:  # still, so that none of these was granted on a newer proof
            for holding in held:
                holding.lease_over()

    def _pause(self, used_at: float) -> float:
        """How long there is nothing to do, in seconds."""
        session = self._session
        now, timeout = session.now(), session.session_timeout
        if self._is_resting:
            return max(used_at + timeout - now, 0) + _SHORTEST
        pause = timeout / _CHECKS
        due_in = self._due_at() - now
        if due_in > 0:
            pause = min(pause, due_in)
        if session.holds:
            pause = min(pause, session.remaining())
        return max(pause, _SHORTEST)
