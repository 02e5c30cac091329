"""Stamps: numbers one grant's requests on one resource."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, runtime_checkable

from ._errors import Refused, StaleToken
from ._stamp import Mode, Stamp


class Stamps:
    """The counter of one grant's requests on one resource, shared by every handle that the grant has there.

    A number is taken when a request is first sent, is never taken twice, and never restarts; gaps are allowed.

    ``turn`` is to be held while a request is under way, and the stamp to be taken under it: a later request that
    overtook an earlier one would make the store refuse the earlier one. It is a plain lock, so that ``with`` has no gap
    for a signal.
    """

    def __init__(self, first: Stamp, check: Callable[[], None] = lambda: None) -> None:
        """``first`` is the stamp of the first request; ``check`` raises where the grant is known to be over."""
        self._first = first
        self._taken = 0
        self._taking = threading.Lock()
        self.turn = threading.Lock()
        self.check = check

    def take(self) -> Stamp:
        """The stamp of the next request. Raises what the grant's check raises."""
        self.check()
        with self._taking:
            number, self._taken = self._taken, self._taken + 1
        return self._first if self._first.op is None else replace(self._first, op=self._first.op + number)

    def reading(self) -> Stamp:
        """A stamp for a read; reads are not counted."""
        self.check()
        return replace(self._first, op=None, mode=Mode.READ)


class Claimant(Protocol):
    """What a receiver needs of a grant; `zkfence.Grant` is one."""

    def stamps(self, resource: str) -> Stamps:
        """The one counter of this grant's requests on ``resource``."""


@runtime_checkable
class Diagnosing(Protocol):
    """A claimant that can find out more about the refusal of its claim. `zkfence.Grant` can: it asks ZooKeeper."""

    def diagnose(self, error: StaleToken) -> Refused:
        """What really is the matter: ``error`` itself where it is what it says, or where that cannot be found out."""


class StampedClaimant:
    """A claimant made from a stamp that came from elsewhere; its requests count on from the stamp's number."""

    def __init__(self, stamp: Stamp) -> None:
        self._stamp = stamp

    def stamps(self, resource: str) -> Stamps:
        return Stamps(self._stamp)
