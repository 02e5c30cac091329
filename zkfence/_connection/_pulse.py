"""Pulse: when to ping a server, and when a silent one counts as gone."""

from __future__ import annotations

import random
from typing import Final

_JITTER: Final = 0.4  # seconds, as in kazoo: clients that were started together do not ping together


class Pulse:
    """When to ping a server, and when a silent one counts as gone. Times are those of one monotonic clock, in seconds.

    Kazoo's rules: after half of ``read_timeout`` without a request there is a ping, and a server that says nothing
    until the next one would be due is gone. And one more, which Java's client has: whoever owes an answer and says
    nothing at all for ``read_timeout`` is gone, however busily it is asked.
    """

    def __init__(self, read_timeout: float, now: float) -> None:
        self._patience = read_timeout
        self._owing_since: float | None = None
        self._pinged = False
        self._ping_at = self._next(now)

    @property
    def due(self) -> float:
        """When to look again at the latest."""
        return self._ping_at if self._owing_since is None else min(self._ping_at, self._owing_since + self._patience)

    def gone(self, now: float) -> bool:
        """Whether the server counts as gone, if it has been listened to until ``now``."""
        if self._owing_since is None:
            return False
        return now >= self._owing_since + self._patience or (self._pinged and now >= self._ping_at)

    def sent(self, now: float, *, ping: bool = False) -> None:
        """Something was sent that has to be answered; it tells the server that the session is alive, too."""
        self._ping_at = self._next(now)
        self._pinged = self._pinged or ping
        if self._owing_since is None:
            self._owing_since = now

    def heard(self, now: float, *, owing: bool) -> None:
        """Something has come; ``owing``: more has to."""
        self._pinged = False
        self._owing_since = now if owing else None

    def _next(self, now: float) -> float:
        half = self._patience / 2
        return now + half - random.uniform(0, min(_JITTER, half / 2))  # noqa: S311  # no secret
