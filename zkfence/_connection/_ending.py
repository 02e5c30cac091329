"""Ending: until when a connection may go on once it was told to end."""

from __future__ import annotations

import errno
import time


class Stopped(OSError):
    """The client was stopped, and the time that was left to its connection is over."""

    def __init__(self) -> None:
        super().__init__(errno.ECANCELED, "the client was stopped")


class Ending:
    """Until when a connection may go on once it was told to end. Every wait of the connection's thread asks it."""

    def __init__(self) -> None:
        self._at: float | None = None

    def order(self, grace: float) -> None:
        """Be through in ``grace`` seconds: what is being said may be said, then the connection is dropped."""
        self._at = time.monotonic() + grace

    def revoke(self) -> None:
        """The connection starts anew."""
        self._at = None

    def within(self, seconds: float) -> float:
        """How long to wait of ``seconds``. Raises `Stopped` where there is no time left."""
        if self._at is None:
            return seconds
        left = self._at - time.monotonic()
        if left <= 0:
            raise Stopped
        return min(seconds, left)
