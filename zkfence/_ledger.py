"""Ledger: how much room the ephemeral nodes of one session take."""

from __future__ import annotations

import threading
from typing import Final, Protocol

from ._errors import TooManyLocks

# A session that ends is one record with the paths of all its nodes. Records above jute.maxbuffer (1 MB by default) are
# not readable by followers, which takes the whole ensemble down (ZOOKEEPER-4306).
LIMIT: Final = 900_000  # bytes
_LENGTH: Final = 4  # bytes in front of each path


class Booked(Protocol):
    booked: int
    """The bytes that the node takes."""


class Ledger:
    """Counts the paths of one session's nodes; a new session has a new one."""

    def __init__(self) -> None:
        self._taken = 0
        self._counting = threading.Lock()

    def book(self, node: Booked, lock_name: str, path_length: int) -> None:
        """Room for one node. Raises `TooManyLocks`."""
        size = path_length + _LENGTH
        with self._counting:
            if self._taken + size > LIMIT:
                raise TooManyLocks(lock_name, LIMIT)
            self._taken += size
            node.booked = size

    def cancel(self, node: Booked) -> None:
        """The node is gone; may be said again."""
        with self._counting:
            self._taken -= node.booked
            node.booked = 0
