"""Heartbeat: proves a session again and again, for all its locks at once, and tells them when it no longer can."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ._core._operations import Check, ConnectionLost, Multi, SessionLost
from ._kazoo import Answers

if TYPE_CHECKING:
    from ._session import Session

_log: Final = logging.getLogger("zkfence")
_INTERVAL_SHARE: Final = 1 / 6  # of the session timeout
# The lightest quorum write: a transaction that only looks. Any answer will do, a refusal too: it came from the leader.
_BEAT: Final = (Multi((Check("/"),)),)


class Heartbeat:
    """A thread (of the client's handler) that lives while somebody holds or waits, and a session timeout longer."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._running = False
        self._under_way: tuple[float, int, Answers] | None = None

    def start(self) -> None:
        """See to it that it runs. Cheap where it does."""
        session = self._session
        if self._running:
            return
        with session.changing:
            if self._running:
                return
            self._running = True
        try:
            session.client.handler.spawn(self._run)
        except BaseException:
            self._running = False
            raise

    def _run(self) -> None:
        session = self._session
        session.idle()
        pause = session.client.handler.event_object()  # never set; it waits for the clock
        used_at = session.now()
        while True:
            self._beat()
            self._lose()
            now = session.now()
            if session.in_use:
                used_at = now
            elif now - used_at > session.session_timeout or session.closed:
                with session.changing:
                    if not session.in_use:
                        self._running = False
                        return
            interval = session.session_timeout * _INTERVAL_SHARE
            until = interval if not session.held else min(interval, max(session.remaining(), interval / 50))
            pause.wait(until)

    def _beat(self) -> None:
        """Send a beat if there is no younger proof; the answer is not waited for."""
        session = self._session
        if self._under_way is not None:
            sent_at, connection, answers = self._under_way
            if not answers.complete and connection == session.connection:
                return
            self._under_way = None
        if not session.ready:
            return
        sent_at = session.now()
        if sent_at - session.newest_proof < session.session_timeout * _INTERVAL_SHARE / 2:
            return
        session_id = session.session_id

        def answered(answers: Answers) -> None:
            (result,) = session.kazoo.results(_BEAT, answers)
            if session.session_id == session_id and not isinstance(result, ConnectionLost | SessionLost):
                session.proved(sent_at)

        answers = session.kazoo.send(_BEAT, None, answered)
        self._under_way = (sent_at, session.connection, answers)

    def _lose(self) -> None:
        """Tell every grant when the lease has run out."""
        session = self._session
        if session.remaining() > 0:
            return
        for holding in session.held:
            session.drop(holding)
            holding.lease_over()
