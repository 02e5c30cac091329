"""Lease: until when a session surely lives, as far as its own client can know.

The leader ends a session that it has not heard of for the session's timeout, at the next of its ticks. What is heard
when, is where the safe bound comes from:

* A client of the leader is heard with every request, at once. A client of a follower is not: the leader asks its
  followers every half tick who has been active since, and hears of the client then; the requests that a follower passes
  on say nothing. So an acknowledged write proves that the session lived when the leader ordered it, and nothing about
  how much longer it will: if the follower is cut off at that moment, the leader never hears of the activity since the
  last time that it asked.
* But a follower answers the leader and passes requests on over one connection, in order. Two acknowledged writes, the
  second of which was *sent* half a tick or more after the first one was *answered*, prove it: the leader has asked in
  between, and so has heard, before it ordered the second, that the client was active at the first. Its timeout starts
  at the sending of the first write, or later. How long either was on its way does not matter, nor whether the
  connection changed in between, nor whether the leader did (a new one gives every session its whole timeout).
* A session that begins or moves to another server is heard of as well. One acknowledged write on that connection shows
  that it was the leader that heard of it, and later than when the client had not yet begun to connect.
* Reads and pings alone prove nothing: a server that is cut off from its leader goes on answering them.

Assumed are a tick of two seconds at most and a session of two ticks at least (ZooKeeper's defaults), that the leader's
question reaches a follower on time, and clocks that differ by one percent in speed at most.

The first write after an idle time has no other one before it, and a grant is not to wait half a tick for it. For that
moment the client is trusted to have been heard of within the last half of the timeout or so, because kazoo sends
something every third of it. This is not proved: if the process or its network stood still just before, and its server
is cut off within the half tick just after, then the lease seems to last longer than it does. The second write ends
that.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

_ROUND: Final = 1.1  # seconds: half of the default tickTime, and a leader that asks a bit late
_ROUND_SHARE: Final = 0.275  # of the session timeout, which is two ticks at least: the same
_TRUST_SHARE: Final = 1 / 2
_SILENCE_SHARE: Final = 1 / 3  # kazoo sends something at least so often
_BEAT_SHARE: Final = 1 / 6
_USUAL_LAG: Final = 2.5  # beats: the last but one, or the one before, is what the leader has certainly heard of
_DRIFT_SHARE: Final = 0.01
_GRAIN: Final = 4  # writes that are closer together than this part of a round need not be remembered


class _Write(NamedTuple):  # or the beginning of a connection
    sent_at: float
    answered_at: float


class Lease:
    """The lease of one session. Times are moments of the session's clock, in seconds; timeouts are the session's.

    Threads may share it.
    """

    def __init__(self) -> None:
        self._heard = float("-inf")  # the leader has heard of the client at this moment, or later
        self._newest = _Write(float("-inf"), float("-inf"))
        self._waiting: list[_Write] = []  # for a later write that proves that they were heard of; few
        self._connected = _Write(float("-inf"), float("inf"))
        self._is_trusting = True
        self._changing = threading.Lock()

    def connected(self, apart_at: float, connected_at: float) -> None:
        """There is a connection since ``connected_at``, which the client had not begun to make at ``apart_at``."""
        self._connected = _Write(apart_at, connected_at)

    def proved(self, sent_at: float, answered_at: float, timeout: float) -> None:
        """A quorum write was acknowledged."""
        with self._changing:
            reported = [each.sent_at for each in self._waiting if each.answered_at + _round(timeout) <= sent_at]
            if reported:
                self._heard = max(self._heard, *reported)
                self._waiting = [each for each in self._waiting if each.sent_at > self._heard]
            if sent_at >= self._connected.answered_at:
                self._heard = max(self._heard, self._connected.sent_at)
            if self._is_trusting:
                self._is_trusting = False
                trusted = max(timeout * _TRUST_SHARE, timeout * _SILENCE_SHARE + _round(timeout))
                self._heard = max(self._heard, sent_at - trusted)
            write = _Write(sent_at, answered_at)
            if not self._waiting or sent_at - self._waiting[-1].sent_at >= _round(timeout) / _GRAIN:
                self._waiting.append(write)
            self._newest = max(self._newest, write)

    def idle(self) -> None:
        """Nothing will be proved for a while, on purpose: the next gap does not mean that the process stood still."""
        self._is_trusting = True

    def ends_at(self, timeout: float) -> float:
        """The moment until which the session lives, if nothing more is heard; ``-inf`` before the first proof."""
        return self._heard + timeout * (1 - _DRIFT_SHARE)

    def beat_due_at(self, timeout: float) -> float:
        """When the next write should be sent, for a lease that does not run short."""
        interval = timeout * _BEAT_SHARE
        with self._changing:
            regular = self._newest.sent_at + interval
            if not self._waiting or self._heard >= self._newest.sent_at - interval * _USUAL_LAG:
                return regular
            return min(regular, self._waiting[0].answered_at + _round(timeout))  # as soon as it proves something


def _round(timeout: float) -> float:
    """How long it takes at most until the leader has heard who was active."""
    return min(_ROUND, timeout * _ROUND_SHARE)
