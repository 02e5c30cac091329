"""Lease: it never seems to last longer than the leader keeps the session, against a model of how leaders hear of it."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkfence._lease import Lease

TICK = 2.0  # seconds: ZooKeeper's default, and the longest that is promised for


@dataclass
class Leader:
    """One leader and the server that the client talks to: the leader itself, or a follower.

    ``asked_at``: the moments at which the follower tells the leader who was active since the moment before. Requests
    that are passed on arrive behind what was told before them.
    """

    timeout: float
    first_question: float = 0.0
    tick: float = TICK
    is_follower: bool = True
    arrivals: list[float] = field(default_factory=list)
    connected_at: float = float("-inf")  # which the leader hears of at once

    def question_after(self, moment: float) -> float:
        """The first moment at or after ``moment`` at which the follower is asked."""
        half = self.tick / 2
        return self.first_question + math.ceil((moment - self.first_question) / half) * half

    def heard_by(self, cut_at: float) -> float:
        """When the leader heard last of the client, if nothing passes from the follower since ``cut_at``."""
        told = [
            self.question_after(arrival) if self.is_follower else arrival
            for arrival in self.arrivals
            if arrival <= cut_at
        ]
        return max((moment for moment in told if moment <= cut_at), default=self.connected_at)

    def session_ends_at(self, cut_at: float) -> float:
        """The earliest moment at which the leader may end the session then; it rounds up to its next tick."""
        return self.heard_by(cut_at) + self.timeout


@dataclass(frozen=True)
class Request:
    """Times that it takes, in seconds: the pause before it, to the server, and back."""

    pause: float
    out: float
    back: float
    is_write: bool = True


def durations(longest: float) -> st.SearchStrategy[float]:
    return st.one_of(st.just(0.0), st.floats(0, longest, allow_subnormal=False))


timeouts = st.sampled_from([4.0, 5.0, 6.0, 10.0, 30.0])
requests = st.builds(Request, durations(12.0), durations(3.0), durations(3.0), st.booleans())


def play(lease: Lease, leader: Leader, course: list[Request]) -> list[tuple[float, float]]:
    """Send the requests; for each acknowledged write, the moment at which the server had it, and of its answer."""
    clock, written = 0.0, []
    for request in course:
        sent_at = clock + request.pause
        arrived_at = sent_at + request.out
        answered_at = clock = arrived_at + request.back
        bisect.insort(leader.arrivals, arrived_at)
        if request.is_write:
            lease.proved(sent_at, answered_at, leader.timeout)
            written.append((arrived_at, answered_at))
    return written


def distrustful() -> Lease:
    """A lease that has had its first write, which is taken on trust, long ago."""
    lease = Lease()
    lease.proved(-1000.0, -1000.0, 10.0)
    return lease


@given(timeouts, st.floats(-TICK, 0), st.booleans(), st.lists(requests, min_size=1, max_size=12))
def test_it_ends_before_the_session_whenever_the_server_is_cut_off_behind_the_last_write(
    timeout: float, first_question: float, is_follower: bool, course: list[Request]
) -> None:
    """The process may stand still and messages may be late as long as they like."""
    lease, leader = distrustful(), Leader(timeout, first_question, is_follower=is_follower)
    written = play(lease, leader, course)
    for arrived_at, _ in written[-1:]:
        assert lease.ends_at(timeout) <= max(leader.session_ends_at(arrived_at), -1000.0 + timeout)


@given(
    st.floats(0.4, 4.0), st.floats(0, 1), st.floats(0.01, 0.5),
    st.lists(st.builds(Request, durations(1.0), durations(0.3), durations(0.3)), min_size=1, max_size=20),
)  # fmt: skip
def test_short_sessions_have_short_ticks(timeout: float, first: float, ticks: float, course: list[Request]) -> None:
    tick = timeout * ticks
    lease, leader = distrustful(), Leader(timeout, -first * tick, tick)
    for arrived_at, _ in play(lease, leader, course)[-1:]:
        assert lease.ends_at(timeout) <= max(leader.session_ends_at(arrived_at), -1000.0 + timeout)


@given(
    timeouts, st.floats(-TICK, 0), durations(0.05),
    st.lists(st.tuples(durations(100.0), durations(2.0)), min_size=1, max_size=6),
)  # fmt: skip
def test_the_first_write_after_an_idle_time_is_trusted_as_far_as_kazoo_says_something(
    timeout: float, first_question: float, late: float, course: list[tuple[float, float]]
) -> None:
    lease, leader = Lease(), Leader(timeout, first_question, connected_at=0.0)
    clock = 0.0
    for idle, busy in course:
        until = clock + idle
        while clock < until:
            leader.arrivals.append(clock)
            clock = min(clock + timeout / 3, until)
        leader.arrivals.append(clock + late)
        lease.proved(clock, clock + late, timeout)
        assert lease.ends_at(timeout) <= leader.session_ends_at(clock + late)
        clock += late + busy
        lease.idle()


def test_a_process_that_stood_still_while_it_held_has_no_lease_when_it_goes_on() -> None:
    lease = Lease()
    for moment in (0.0, 1.5, 3.0):
        lease.proved(moment, moment + 0.01, 10.0)
    lease.proved(14.0, 14.01, 10.0)
    assert lease.ends_at(10.0) < 14.0, "the answer shows that the session lives, and not how much longer"
    lease.proved(14.5, 14.51, 10.0)
    assert lease.ends_at(10.0) < 14.0, "the leader may not have asked in between"
    lease.proved(15.2, 15.21, 10.0)
    assert lease.ends_at(10.0) == pytest.approx(14.0 + 9.9)


def test_the_time_that_a_write_was_on_its_way_is_not_counted() -> None:
    """Both may have reached the server together, between two questions."""
    lease = distrustful()
    lease.proved(0.0, 1.0, 10.0)
    lease.proved(1.5, 1.5, 10.0)
    assert lease.ends_at(10.0) < 0
    lease.proved(2.2, 2.2, 10.0)
    assert lease.ends_at(10.0) == pytest.approx(9.9)


@given(timeouts, durations(30.0), durations(5.0), durations(5.0), st.lists(requests, min_size=1, max_size=4))
def test_a_connection_is_heard_of_when_it_is_made(
    timeout: float, apart: float, out: float, back: float, course: list[Request]
) -> None:
    """And only a write shows that it was the leader that heard of it."""
    lease = distrustful()
    leader = Leader(timeout, connected_at=apart + out)
    lease.connected(apart, apart + out + back)
    assert lease.ends_at(timeout) < 0
    first, *others = course
    course = [Request(first.pause + apart + out + back, first.out, first.back, first.is_write), *others]
    written = play(lease, leader, course)
    if written:
        assert apart + timeout * 0.99 <= lease.ends_at(timeout) <= leader.session_ends_at(written[-1][0])


def test_a_write_that_was_sent_before_says_nothing_of_a_new_connection() -> None:
    lease = distrustful()
    lease.connected(5.0, 6.0)
    lease.proved(5.5, 6.5, 10.0)
    assert lease.ends_at(10.0) < 0


@pytest.mark.parametrize(("timeout", "tick"), [(30.0, 2.0), (4.0, 2.0), (2.0, 1.0), (0.4, 0.2)])
def test_two_writes_between_two_questions_of_the_leader_prove_nothing(timeout: float, tick: float) -> None:
    lease, leader = distrustful(), Leader(timeout, first_question=-0.01 * tick, tick=tick)
    leader.arrivals += [0.0, 0.48 * tick]
    lease.proved(0.0, 0.0, timeout)
    lease.proved(0.48 * tick, 0.48 * tick, timeout)
    assert leader.heard_by(0.48 * tick) < 0
    assert lease.ends_at(timeout) < 0
    lease.proved(0.6 * tick, 0.6 * tick, timeout)
    assert lease.ends_at(timeout) == pytest.approx(timeout * 0.99)


def test_nothing_is_sure_before_the_first_write() -> None:
    assert Lease().ends_at(10.0) == float("-inf")
    assert Lease().beat_due_at(10.0) == float("-inf")


@pytest.mark.parametrize("timeout", [0.4, 1.0, 4.0, 6.0, 10.0, 60.0])
def test_a_beat_when_it_is_due_keeps_the_lease_far_from_its_end(timeout: float) -> None:
    lease, clock, left = Lease(), 0.0, []
    for _ in range(50):
        lease.proved(clock, clock, timeout)
        due = lease.beat_due_at(timeout)
        assert clock < due <= clock + timeout / 6
        left.append((lease.ends_at(timeout) - due) / timeout)
        clock = due
    assert left[0] > 0.2
    assert min(left[5:]) > 0.45
    assert clock > 45 * timeout / 6, "no more beats than are needed"


def test_many_writes_take_no_room() -> None:
    lease = Lease()
    for number in range(10_000):
        lease.proved(number / 1000, number / 1000, 10.0)
    assert len(lease._waiting) < 10
    assert lease.ends_at(10.0) > 9.999 - 1.5 + 9.9


@given(st.lists(st.tuples(st.floats(0, 20), durations(1.0)), min_size=1, max_size=8))
def test_a_late_report_of_another_thread_takes_nothing_back(writes: list[tuple[float, float]]) -> None:
    lease = Lease()
    ends = []
    for sent_at, taken in writes:
        lease.proved(sent_at, sent_at + taken, 10.0)
        ends.append(lease.ends_at(10.0))
    assert ends == sorted(ends)
