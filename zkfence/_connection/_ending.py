"""Ending: until when a connection may go on once it was told to end."""

from __future__ import annotations

import errno
import time


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
        """How long to wait of ``seconds``. Raises OSError where there is no time left."""
        if self._at is None:
            return seconds
        left = self._at - time.monotonic()
        if left <= 0:
            raise OSError(errno.ECANCELED, "the client was stopped")
        return min(seconds, left)
