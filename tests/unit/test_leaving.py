"""A crowd that leaves together: what is asked of ZooKeeper, and what is made of its answers."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from zkfence._core._attempt import Attempt, State
from zkfence._core._layout import Layout
from zkfence._core._leaving import leave_all
from zkfence._core._operations import (
    Children,
    ConnectionLost,
    Delete,
    Flight,
    Get,
    Landed,
    Listing,
    Multi,
    Node,
    NoNode,
    SessionLost,
    SetData,
    Sync,
)

COUNTER = "/zkfence/locks/a/1"


class Stat(NamedTuple):
    czxid: int
    ephemeralOwner: int = 7  # noqa: N815
    version: int = 0
    numChildren: int = 0  # noqa: N815
    pzxid: int = 0


class Surroundings:
    session_id: int | None = 7
    connection = 1
    session_timeout = 10.0

    def remaining(self) -> float:
        return 10.0


def attempt(number: int, *, watched: bool = True) -> Attempt:
    return Attempt(
        Layout("/zkfence"), "a", f"guid-{number}", b"{}", state=State.QUEUED, epoch=1, path=path(number),
        czxid=number, session_id=7, connection=Surroundings.connection if watched else None,
    )  # fmt: skip


def path(number: int) -> str:
    return f"{COUNTER}/x-{number:010d}"


def landed(*results: object) -> Landed:
    return Landed(0.0, results)


def test_a_crowd_that_is_watched_leaves_in_one_flight() -> None:
    crowd = [attempt(number) for number in range(100)]
    crowd[3].watermark = 3
    steps = leave_all(crowd, Surroundings())
    flight = next(steps)
    assert isinstance(flight, Flight)
    assert flight.operations[:3] == tuple(Delete(path(number)) for number in range(3))
    assert flight.operations[3] == Multi((Delete(path(3)), SetData(COUNTER, b'{"v":1,"gone":3}')))
    assert len(flight.operations) == 100
    with pytest.raises(StopIteration):
        steps.send(landed(*[None] * 50, *[NoNode()] * 50))
    assert all(each.nothing_left for each in crowd)


def test_a_deletion_that_is_not_confirmed_goes_on() -> None:
    crowd = [attempt(0), attempt(1)]
    steps = leave_all(crowd, Surroundings())
    next(steps)
    assert steps.send(landed(None, ConnectionLost())) == Flight((Delete(path(1)),))
    assert steps.send(landed(ConnectionLost())) == Flight((Get(path(1)),))
    with pytest.raises(StopIteration):
        steps.send(landed(NoNode()))
    assert all(each.nothing_left for each in crowd)


def test_a_node_that_was_not_watched_is_looked_at_before_it_is_deleted() -> None:
    """It may be somebody else's, in a namespace that was made anew."""
    crowd = [attempt(number, watched=False) for number in range(3)]
    steps = leave_all(crowd, Surroundings())
    assert next(steps) == Flight(tuple(Get(path(number)) for number in range(3)))
    looked = landed(Node(b"{}", Stat(czxid=0)), Node(b"{}", Stat(czxid=99)), NoNode())
    assert steps.send(looked) == Flight((Delete(path(0)),))
    with pytest.raises(StopIteration):
        steps.send(landed(None))
    assert all(each.nothing_left for each in crowd)


def test_nodes_that_may_have_been_made_are_looked_for_once_for_all() -> None:
    crowd = [attempt(number) for number in range(3)]
    for each in crowd[1:]:
        each.creating(1)
    steps = leave_all(crowd, Surroundings())
    assert next(steps) == Flight((Sync(COUNTER), Children(COUNTER)))
    names = [path(number).rpartition("/")[2] for number in (1, 4, 5)]
    assert steps.send(landed(None, Listing(names, Stat(1)))) == Flight(tuple(Get(path(each)) for each in (1, 4, 5)))
    nodes = [
        Node(b'{"guid":"guid-1"}', Stat(1)),
        Node(b'{"guid":"guid-2"}', Stat(4, ephemeralOwner=6)),  # of an earlier session: goes by itself
        Node(b'{"guid":"somebody"}', Stat(5)),
    ]
    assert steps.send(landed(*nodes)) == Flight((Delete(path(0)), Delete(path(1))))
    with pytest.raises(StopIteration):
        steps.send(landed(None, None))
    assert all(each.state is State.IDLE for each in crowd)


def test_the_end_of_the_session_ends_it() -> None:
    steps = leave_all([attempt(0)], Surroundings())
    next(steps)
    with pytest.raises(SessionLost):
        steps.send(landed(SessionLost()))
