"""Grant: a lock that is held, and its fencing token."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol, Self

from zkfence_receivers.words import Refused, StaleToken

from ._diagnosis import diagnose
from ._grant_base import GrantBase
from ._holding import Holding, State
from ._threads import leave_later, leave_now

_log: Final = logging.getLogger("zkfence")


class Event(Protocol):
    """An event of the client's handler; `threading.Event`, usually."""

    def is_set(self) -> bool: ...
    def set(self) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class Grant(GrantBase):
    """One grant of one lock. A context manager: leaving it releases the lock.

    ``token`` is larger than that of every earlier grant of the same lock. That the grant still *holds* can never be
    known for sure: `check` and `lost` tell as soon as this process can know, and may be late. The promise is the
    receiver's: claim the resource there, and write through the handle.
    """

    __slots__ = ("_lost",)

    def __init__(self, holding: Holding) -> None:
        super().__init__(holding)
        holding.take(self)
        self._lost: Event | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    @property
    def lost(self) -> Event:
        """Set when the grant is known to be lost: its node was deleted, the session is over, or the local deadline has
        passed without an answer; in a forked child too, which holds nothing. An event of the client's handler."""
        if os.getpid() != self._holding.session.pid:
            event = self._holding.session.client.handler.event_object()
            event.set()
            return event
        if self._lost is None:
            event = self._holding.session.client.handler.event_object()
            with self._holding.session.changing:
                first = self._lost is None
                if first:
                    self._lost = event
            if first:
                self._holding.when_lost(event.set)
        assert self._lost is not None
        return self._lost

    def on_lost(self, callback: Callable[[Grant], object]) -> None:
        """Call ``callback(grant)`` once when the grant is lost, in a thread of its own; at once if it is lost already.

        It may release, acquire, and call ZooKeeper. It is not called after a release.
        """
        was_lost = self._holding.state is State.LOST  # before the release, if there was one
        self._holding.when_lost(lambda: self._start(callback) if was_lost or not self._is_released else None)

    def diagnose(self, error: StaleToken) -> Refused:
        """What the refusal of this grant's claim means: `TokenRegressed` if ZooKeeper confirms that the grant still
        holds the lock, for then nobody can have had a later token; otherwise, and where that is not certain within
        five seconds, ``error`` itself. Receivers ask.
        """
        return error if self._is_released else diagnose(self._holding, error)

    def release(self) -> None:
        """Give the lock back: delete exactly the own node, and wait for the answer, for one session timeout at most.

        May be called again, and after a loss: then nothing is deleted that is not the own node. What cannot be
        confirmed goes on in the background. In a forked child it does nothing: the grant is the parent's. With
        ``reentrant=True``, the last release gives the lock back.
        """
        holding, session = self._holding, self._holding.session
        if os.getpid() != session.pid:
            return
        if self._is_released:
            return
        try:
            self._is_released = True
            if holding.give_back(self):
                session.drop(holding)
                leave_now(session, holding.attempts)
        except BaseException:  # Ctrl-C, say, at any of these lines
            if holding.give_back(self):
                leave_later(session, holding.attempts)
            raise

    def _start(self, callback: Callable[[Grant], object]) -> None:
        self._holding.session.client.handler.spawn(self._call, callback)

    def _call(self, callback: Callable[[Grant], object]) -> None:
        try:
            callback(self)
        except Exception:
            _log.exception("an on_lost callback of lock %r failed", self.lock_name)
