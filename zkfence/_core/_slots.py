"""Slots: a semaphore's second step. One of its first n contenders takes a free one of n exclusive locks.

So no two holders have the same lock at the same time, and the tokens of one do not fence out the other.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from itertools import count
from typing import Final

from ._acquiring import Acquisition
from ._attempt import Attempt
from ._counter import CounterPath
from ._layout import contenders_in, counter_path, load_lock_epoch, slot_name
from ._leaving import leave
from ._operations import (
    Children,
    Exists,
    Get,
    Jitter,
    Listing,
    NoNode,
    SessionLost,
    Steps,
    land,
    read,
    read_many,
)
from ._queue import Granted, StartOver
from ._surroundings import Surroundings

_LOOK: Final = 16  # slots are looked at together: the first of them is free most of the time
_TRIES: Final = 5  # of one that does not wait: others that look for a slot may have been in those that it tried


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
        tries = 0
        while True:
            if (yield from self.queue.run()) is None:
                return None
            try:
                return (yield from self._take_one())
            except SessionLost:
                permit.session_lost()
            except StartOver:
                permit.gone()
            try:
                yield from self._leave_slot()
            except SessionLost:
                self._taking = None
            yield Jitter(tries)
            tries += 1

    def _take_one(self) -> Steps[Granted | None]:
        """Raises `SessionLost` or `StartOver` where the permit is gone; a slot may be taken all the same."""
        (permit,) = self.queue.attempts
        for tries in count():
            for start in range(0, len(self._slots), _LOOK):
                for slot in (yield from self._free_among(self._slots[start : start + _LOOK])):
                    self._taking = self._enter(slot)
                    granted = yield from self._taking.run()
                    self._remember(slot, self._taking.memory)
                    if granted is not None:
                        if granted.attempt.session_id != permit.session_id:
                            raise SessionLost
                        self.slot = slot
                        return granted._replace(slot=slot)
                    yield from self._leave_slot()
            if not self._wait and tries == _TRIES:
                break
            # Everybody who has a slot has a permit too, but may be about to leave, or have lost only the permit.
            yield Jitter(tries)
        return None

    def _leave_slot(self) -> Steps[None]:
        if self._taking is not None:
            yield from leave(self._taking.attempts[0], self._surroundings)
            self._taking = None

    def _remember(self, slot: int, memory: CounterPath | None) -> None:
        if memory is None:
            self._memories.pop(slot, None)
        else:
            self._memories[slot] = memory

    def _free_among(self, slots: Sequence[int]) -> Steps[Sequence[int]]:
        """Some that seem to be free: where nobody was seen a moment ago."""
        (permit,) = self.queue.attempts
        session_id = self._surroundings.session_id
        if permit.session_id != session_id:
            raise SessionLost
        locks = {slot: permit.layout.lock(slot_name(permit.lock_name, slot)) for slot in slots}
        counters: dict[int, str] = {}
        for slot in slots:
            memory = self._memories.get(slot)
            if memory is not None and memory.session_id == session_id:
                counters[slot] = counter_path(locks[slot], memory.epoch)
        unknown = [slot for slot in slots if slot not in counters]
        own, *found = yield from read(
            Exists(permit.path),
            *(Children(counter) for counter in counters.values()),
            *(Get(locks[slot]) for slot in unknown),
        )
        if isinstance(own, NoNode):
            raise StartOver
        free = [slot for slot, listing in zip(counters, found, strict=False) if not _is_taken(listing)]
        if free:
            return free
        learned: dict[int, str] = {}
        for slot, node in zip(unknown, found[len(counters) :], strict=True):
            if isinstance(node, NoNode):
                free.append(slot)  # nobody has used it yet
            else:
                epoch = load_lock_epoch(locks[slot], land(node).data)
                self._memories[slot] = CounterPath(epoch, permit.session_id)
                learned[slot] = counter_path(locks[slot], epoch)
        listings = yield from read_many([Children(counter) for counter in learned.values()])
        return free + [slot for slot, listing in zip(learned, listings, strict=True) if not _is_taken(listing)]


def _is_taken(listing: Listing | Exception) -> bool:
    return not isinstance(listing, NoNode) and bool(contenders_in(land(listing).names))
