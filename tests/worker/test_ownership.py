"""Ownership: after a lost reply there is exactly one own node, and nobody else's is taken for it."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from kazoo.client import KazooClient

import zkfence
from zkfence import FencedLock, _lock
from zkfence._core._operations import Create

from .conftest import Faults, Nodes

Eventually = Callable[..., None]


@pytest.mark.parametrize("lost", [1, 2])
def test_a_create_whose_reply_is_lost_is_found_again(
    lock: FencedLock, nodes: Nodes, faults: Faults, lost: int, eventually: Eventually
) -> None:
    lock.acquire().release()
    faults.lost_replies = lost
    with lock.acquire(timeout=10) as grant:
        assert nodes.contenders("a") == [grant.path]
    eventually(lambda: nodes.contenders("a") == [], "nothing stays behind")


def test_a_create_that_never_arrived_is_sent_again(lock: FencedLock, nodes: Nodes, faults: Faults) -> None:
    faults.lost_requests = 2
    with lock.acquire(timeout=10) as grant:
        assert nodes.contenders("a") == [grant.path]


def test_a_create_that_is_applied_late_is_swept_up_with_the_release(
    lock: FencedLock, zk: zkfence.Client, nodes: Nodes, faults: Faults, eventually: Eventually
) -> None:
    lock.acquire().release()
    created: list[Create] = []
    faults.before_create = created.append
    faults.lost_requests = 1
    with lock.acquire(timeout=10) as grant:
        late = zk.create(created[0].path, created[0].data, ephemeral=True, sequence=True)
        assert nodes.contenders("a") == [grant.path, late]
    eventually(lambda: nodes.contenders("a") == [], "the late one is gone too", within=1.0)


def test_a_node_with_the_same_guid_of_another_session_is_not_adopted(
    lock: FencedLock, other_zk: KazooClient, nodes: Nodes, faults: Faults, monkeypatch: pytest.MonkeyPatch,
    in_background: Callable[..., object], eventually: Eventually,
) -> None:  # fmt: skip
    """A session that has just ended leaves its node visible for a while, with the very GUID that is looked for."""
    lock.acquire().release()
    guid = uuid.uuid4()
    monkeypatch.setattr(_lock.uuid, "uuid4", lambda: guid)
    dying: list[str] = []

    def leave_a_node_of_the_earlier_session(create: Create) -> None:
        if not dying:
            dying.append(other_zk.create(create.path, create.data, ephemeral=True, sequence=True))

    faults.before_create = leave_a_node_of_the_earlier_session
    faults.lost_requests = 1
    grants: list[zkfence.Grant] = []
    in_background(lambda: grants.append(lock.acquire(timeout=15)))
    eventually(lambda: len(nodes.contenders("a")) == 2, "a node of its own stands behind the dying one")
    assert not grants, "it must not hold the lock on somebody else's node"
    other_zk.delete(dying[0])
    eventually(lambda: len(grants) == 1, "it is granted on its own node")
    assert nodes.contenders("a") == [grants[0].path] != dying
    grants[0].release()


def test_an_acquisition_with_lost_replies_that_gives_up_leaves_nothing(
    lock: FencedLock, other: FencedLock, nodes: Nodes, faults: Faults, eventually: Eventually
) -> None:
    with other as grant:
        for _ in range(10):
            faults.lost_replies = 1
            assert lock.try_acquire() is None
        eventually(lambda: nodes.contenders("a") == [grant.path], "only the holder is there", within=2.0)
