"""Slots: a semaphore's second step. One of its first n contenders takes a free one of n exclusive locks.

So no two holders have the same lock at the same time, and the tokens of one do not fence out the other.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence

from ._acquiring import Acquisition
from ._attempt import Attempt
from ._counter import CounterPath
from ._layout import contenders_in, counter_path, slot_name
from ._leaving import leave
from ._operations import Children, Jitter, Listing, NoNode, Steps, land, read
from ._queue import Granted
from ._surroundings import Surroundings

_BATCH = 100  # listings in one flight


class SlotAcquisition:
    """Queue for a permit, then take a free slot. ``memories`` is what is known of each slot's lock."""

    def __init__(
        self,
        queue: Acquisition,
        surroundings: Surroundings,
        slots: Sequence[int],
        enter: Callable[[int], Acquisition],
        memories: MutableMapping[int, CounterPath],
        *,
        wait: bool,
    ) -> None:
        """``slots``: in the order in which they are to be tried. ``enter`` makes an acquisition of a slot's lock, one
        that does not wait."""
        self.queue = queue
        self.slot: int | None = None
        self._surroundings = surroundings
        self._slots = slots
        self._enter = enter
        self._memories = memories
        self._wait = wait
        self._taking: Acquisition | None = None

    @property
    def attempts(self) -> Sequence[Attempt]:
        # The slot first: whoever is admitted next finds it free.
        return (*(self._taking.attempts if self._taking else ()), *self.queue.attempts)

    def run(self) -> Steps[Granted | None]:
        """See `Procedure`."""
        (permit,) = self.queue.attempts
        while True:
            admitted = yield from self.queue.run()
            if admitted is None:
                return None
            granted = yield from self._take_one()
            if granted is None or granted.attempt.session_id == permit.session_id:
                return granted
            permit.session_lost()  # while it looked for a slot
            yield from leave(granted.attempt, self._surroundings)

    def _take_one(self) -> Steps[Granted | None]:
        tries = 0
        while True:
            free, unknown = yield from self._look()
            for slot in (*free, *unknown):
                self._taking = self._enter(slot)
                granted = yield from self._taking.run()
                if self._taking.memory is not None:
                    self._memories[slot] = self._taking.memory
                if granted is not None:
                    self.slot = slot
                    return granted._replace(slot=slot)
                yield from leave(self._taking.attempts[0], self._surroundings)
            if not self._wait:
                return None
            # Everybody who has a slot has a permit too, but may be about to leave, or have lost only the permit.
            yield Jitter(tries)
            tries += 1

    def _look(self) -> Steps[tuple[Sequence[int], Sequence[int]]]:
        """The slots that are free, and those of which nothing is known yet."""
        session_id = self._surroundings.session_id
        known: list[tuple[int, str]] = []
        unknown: list[int] = []
        (permit,) = self.queue.attempts
        for slot in self._slots:
            memory = self._memories.get(slot)
            if memory is not None and memory.session_id == session_id:
                lock_path = permit.layout.lock(slot_name(permit.lock_name, slot))
                known.append((slot, counter_path(lock_path, memory.epoch)))
            else:
                unknown.append(slot)
        free: list[int] = []
        for start in range(0, len(known), _BATCH):
            batch = known[start : start + _BATCH]
            listings = yield from read(*(Children(counter) for _, counter in batch))
            free += [slot for (slot, _), found in zip(batch, listings, strict=True) if not _is_taken(found)]
        return free, unknown


def _is_taken(listing: Listing | Exception) -> bool:
    return not isinstance(listing, NoNode) and bool(contenders_in(land(listing).names))
