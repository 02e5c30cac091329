"""Opening and rolling, step by step: what a roll needs for a proof."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.protocol.states import ZnodeStat

from zkfence._core._attempt import Attempt
from zkfence._core._layout import Layout, dump
from zkfence._core._opening import find_epoch
from zkfence._core._operations import Created, Delete, Flight, Landed, Multi, Node, NoNode


def stat(czxid: int) -> Any:
    return ZnodeStat(czxid, czxid, 0, 0, 3, 0, 0, 7, 0, 0, czxid)


@pytest.fixture
def attempt() -> Attempt:
    """Its node has a closing number, in the counter path of epoch 1."""
    attempt = Attempt(Layout("/z"), "a", "guid", b"")
    attempt.creating(1)
    attempt.queued(Created("/z/locks/a/1/x-2147483647", stat(5)), 7)
    return attempt


EPOCH = Node(b"1", stat(1))
LOCK = Node(dump(epoch=1), stat(2))


def test_a_roll_deletes_the_own_closing_node_in_the_same_transaction(attempt: Attempt) -> None:
    steps = find_epoch(attempt, "id", closed=1)
    next(steps)
    effect = steps.send(Landed(0.0, (EPOCH, LOCK, Node(b"", stat(5)))))
    assert isinstance(effect, Flight)
    (roll,) = effect.operations
    assert isinstance(roll, Multi)
    assert roll.operations[0] == Delete("/z/locks/a/1/x-2147483647")


@pytest.mark.parametrize("own", [NoNode(), Node(b"", stat(6))], ids=["gone", "another one at its path"])
def test_without_the_own_closing_node_nothing_is_rolled(attempt: Attempt, own: object) -> None:
    """The namespace may have been made anew, and have an epoch 1 again, whose path is open."""
    steps = find_epoch(attempt, "id", closed=1)
    next(steps)
    with pytest.raises(StopIteration) as ended:
        steps.send(Landed(0.0, (EPOCH, LOCK, own)))
    assert ended.value.value == 1
    assert attempt.path == ""
