"""Lease: until when a session surely lives, as far as its own client can know."""

from __future__ import annotations

from typing import Final

# The leader ends a session that it has not heard of for the session's timeout. It hears of the client from the server
# that the client is connected to, which tells it twice per tick who was active. So an acknowledged write proves that
# the session lived, and that the leader has heard of all that the client did up to half a tick before; of the write
# itself it may hear only half a tick later, or never, if that server is cut off in that very moment. Reads and pings
# prove nothing.
_HALF_TICK: Final = 1.0  # seconds, at ZooKeeper's default tickTime; and sessions last two ticks at least
_SILENCE_SHARE: Final = 1 / 3  # kazoo sends something at least so often, counted in session timeouts
_DRIFT_SHARE: Final = 0.01  # the two clocks may differ by so much in speed


class Lease:
    """The lease of one session. Times are moments of the session's clock, in seconds; not to be shared by sessions.

    Threads may report at the same time: what is lost is at most a later proof.
    """

    def __init__(self) -> None:
        self._heard = float("-inf")  # the leader has heard of the client at this moment, or later
        self._newest = float("-inf")
        self._older: float | None = None  # a proof that is awaiting a later one

    def proved(self, sent_at: float, timeout: float) -> None:
        """A quorum write that was sent at ``sent_at`` was acknowledged; ``timeout`` is the session's, in seconds."""
        half_tick = min(_HALF_TICK, timeout / 4)
        self._newest = max(self._newest, sent_at)
        if self._older is None:
            self._heard = max(self._heard, sent_at - timeout * _SILENCE_SHARE - half_tick)
            self._older = sent_at
        elif sent_at - self._older >= half_tick:
            self._heard = max(self._heard, self._older)
            self._older = sent_at

    def idle(self) -> None:
        """Nothing will be proved for a while, on purpose: the next gap does not mean that the process was paused."""
        self._older = None

    def ends_at(self, timeout: float) -> float:
        """The moment until which the session lives, if nothing more is heard; ``-inf`` before the first proof."""
        return self._heard + timeout * (1 - _DRIFT_SHARE)

    @property
    def newest_proof(self) -> float:
        """When the newest acknowledged write was sent; ``-inf`` before the first one."""
        return self._newest
