"""SemaphoreBase: what makes a lock a semaphore, for threads and for tasks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from kazoo.client import KazooClient
from kazoo.security import ACL

from zkfence_receivers.words import check_name

from ._core._acquiring import Acquisition, Procedure
from ._core._counter import CounterPath
from ._core._kinds import EXCLUSIVE, semaphore
from ._core._layout import MAX_PERMITS, slot_name
from ._core._slots import SlotAcquisition
from ._holding import Holding
from ._lock_base import LockBase, fresh_id


class SemaphoreBase(LockBase):
    """A lock with several slots."""

    def __init__(
        self,
        client: KazooClient,
        name: str,
        *,
        permits: int,
        namespace: str = "/zkfence",
        info: str = "",
        acl: Sequence[ACL] | None = None,
        session_timeout: float | None = None,
    ) -> None:
        if type(permits) is not int or not 1 <= permits <= MAX_PERMITS:
            raise ValueError(f"permits is a whole number from 1 to {MAX_PERMITS}, not {permits!r}")
        kind = semaphore(permits)
        super().__init__(client, name, kind, namespace=namespace, info=info, acl=acl, session_timeout=session_timeout)
        check_name(slot_name(name, permits - 1), "lock")
        self.permits = permits
        self._slots: dict[int, CounterPath] = {}
        self._last_slot: int | None = None

    def _begin(self, *, wait: bool) -> SlotAcquisition:
        guid = fresh_id()
        queue = self._acquisition(self._attempt(self.name, self._kind, guid), self._memory, wait=wait)
        slots = random.sample(range(self.permits), self.permits)  # so that rivals do not try the same one
        if self._last_slot is not None:
            slots.sort(key=lambda slot: slot != self._last_slot)
        return SlotAcquisition(queue, self._session, slots, partial(self._enter_slot, guid), self._slots, wait=wait)

    def _enter_slot(self, guid: str, slot: int) -> Acquisition:
        attempt = self._attempt(slot_name(self.name, slot), EXCLUSIVE, guid)
        return self._acquisition(attempt, self._slots.get(slot), wait=False)

    def _remember(self, procedure: Procedure) -> None:
        assert isinstance(procedure, SlotAcquisition)
        self._learn(procedure.queue.memory)
        self._last_slot = procedure.slot

    def _waits_for(self, held: Sequence[Holding]) -> bool:
        return len(held) >= self.permits
