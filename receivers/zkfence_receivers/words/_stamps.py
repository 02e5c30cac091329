"""Stamps: numbers one grant's requests on one resource."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from ._stamp import Stamp


class Stamps:
    """The counter of one grant's requests on one resource, shared by every handle that the grant has there.

    A number is taken when a request is first sent, is never taken twice, and never restarts; gaps are allowed.
    """

    def __init__(self, first: Stamp, check: Callable[[], None] = lambda: None) -> None:
        """``first`` is the stamp of the first request; ``check`` raises where the grant is known to be over."""
        self._next = first
        self._check = check
        self._taking = threading.Lock()
        self._sending = threading.Lock()

    def take(self) -> Stamp:
        """The stamp of the next request. Raises what the grant's check raises."""
        self._check()
        with self._taking:
            stamp = self._next
            if stamp.op is not None:
                self._next = replace(stamp, op=stamp.op + 1)
            return stamp

    @contextmanager
    def request(self) -> Iterator[Stamp]:
        """The stamp of the next request, for as long as that one is under way.

        One at a time: a later request that overtook an earlier one would make the store refuse the earlier one.
        """
        with self._sending:
            yield self.take()

    def reading(self) -> Stamp:
        """A stamp for a read; reads are not counted."""
        self._check()
        return replace(self._next, op=None)


class Claimant(Protocol):
    """What a receiver needs of a grant; `zkfence.Grant` is one."""

    def stamps(self, resource: str) -> Stamps:
        """The one counter of this grant's requests on ``resource``."""


class StampedClaimant:
    """A claimant made from a stamp that came from elsewhere; its requests count on from the stamp's number."""

    def __init__(self, stamp: Stamp) -> None:
        self._stamp = stamp

    def stamps(self, resource: str) -> Stamps:
        return Stamps(self._stamp)
