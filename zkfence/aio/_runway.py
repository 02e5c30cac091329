"""Runway: how many requests the tasks of one session have in flight."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Final
from weakref import WeakKeyDictionary

from .._session import Session

# kazoo writes one byte per request into a pipe that holds some 270, and blocks: a thread may, an event loop must not.
LIMIT: Final = 128  # requests; no flight of the protocol is larger


class State(Enum):
    WAITING = auto()
    CLEARED = auto()  # its task is being told
    TAKEN = auto()
    OVER = auto()


class Slot:
    """Room for one flight."""

    __slots__ = ("requests", "ring", "state")

    def __init__(self, requests: int, ring: Callable[[], object]) -> None:
        self.requests = requests
        self.ring = ring
        self.state = State.WAITING

    @property
    def taken(self) -> bool:
        """There is room for it from now on, until it is left."""
        return self.state is State.TAKEN


class Runway:
    """Flights leave in the order in which they came, on whichever event loops. For any thread; never blocks for long.

    A slot is left when the answers have landed, and not when the task that has sent the requests is cancelled.
    """

    _of_session: Final[WeakKeyDictionary[Session, Runway]] = WeakKeyDictionary()
    _registry: Final = threading.Lock()

    def __init__(self) -> None:
        self._changing = threading.RLock()  # ``ring`` may leave a slot: that of a task whose loop is closed
        self._waiting: deque[Slot] = deque()
        self._in_use = 0
        self._cleared = 0  # slots whose tasks are on their way: who comes later must not overtake them
        self._is_clearing = False

    @classmethod
    def of(cls, session: Session) -> Runway:
        """The one runway of a session."""
        with cls._registry:
            runway = cls._of_session.get(session)
            if runway is None:
                runway = cls._of_session[session] = cls()
            return runway

    def enter(self, requests: int, ring: Callable[[], object]) -> Slot:
        """Get into the line. Where the slot is not taken by that, `take` it when ``ring`` was called; that comes on any
        thread, and must not block."""
        slot = Slot(requests, ring)
        with self._changing:
            if not self._waiting and not self._cleared and self._fits(slot):
                slot.state = State.TAKEN
                self._in_use += requests
            else:
                self._waiting.append(slot)
                self._clear()
        return slot

    def take(self, slot: Slot) -> None:
        """Take what was cleared; nothing, if it was not."""
        with self._changing:
            if slot.state is State.CLEARED:
                slot.state = State.TAKEN
                self._cleared -= 1

    def leave(self, slot: Slot) -> None:
        """Give the room back, or the place in the line. May be said again."""
        with self._changing:
            if slot.state is State.CLEARED:
                self._cleared -= 1
            if slot.state in (State.CLEARED, State.TAKEN):
                self._in_use -= slot.requests
            slot.state, slot.requests = State.OVER, 0
            self._clear()

    def _fits(self, slot: Slot) -> bool:
        return not self._in_use or self._in_use + slot.requests <= LIMIT

    def _clear(self) -> None:
        if self._is_clearing:
            return
        self._is_clearing = True
        try:
            while self._waiting and self._fits(self._waiting[0]):
                slot = self._waiting.popleft()
                if slot.state is State.WAITING:
                    slot.state = State.CLEARED
                    self._cleared += 1
                    self._in_use += slot.requests
                    slot.ring()
        finally:
            self._is_clearing = False
