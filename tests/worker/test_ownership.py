"""Ownership: after a lost reply there is exactly one own node, and nobody else's is taken for it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkfence
from zkfence import FencedLock, _lock_base
from zkfence._core._operations import Children, Create, Effect, Flight, Get, Sync
from zkfence._holding import Holding

from .conftest import Background, Faults, Nodes, contender_in

Start = Callable[[Callable[[], Any]], Background]
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


def test_the_look_up_comes_behind_a_sync(lock: FencedLock, faults: Faults) -> None:
    """A server that lags would hide the node; a second one would then wait for the first one for ever."""
    lock.acquire().release()
    faults.effects.clear()
    faults.lost_replies = 1
    lock.acquire(timeout=10).release()
    _, create, look_up = faults.effects[:3]
    assert contender_in(create)
    assert isinstance(look_up, Flight)
    assert isinstance(look_up.operations[0], Sync)


def test_a_create_that_never_arrived_is_sent_again(lock: FencedLock, nodes: Nodes, faults: Faults) -> None:
    faults.lost_requests = 2
    with lock.acquire(timeout=10) as grant:
        assert nodes.contenders("a") == [grant.path]


def test_a_create_that_is_applied_late_is_swept_up_with_the_release(
    lock: FencedLock, zk: zkfence.Client, nodes: Nodes, faults: Faults, eventually: Eventually
) -> None:
    lock.acquire().release()
    created: list[Create] = []
    faults.before = lambda effect: created.extend(filter(None, [contender_in(effect)]))
    faults.lost_requests = 1
    with lock.acquire(timeout=10) as grant:
        late = zk.create(created[0].path, created[0].data, ephemeral=True, sequence=True)
        assert nodes.contenders("a") == [grant.path, late]
    eventually(lambda: nodes.contenders("a") == [], "the late one is gone too", within=1.0)


def forget_the_number(lock: FencedLock) -> None:
    """So that the next acquisition cannot guess its node's name, and takes two flights."""
    assert lock._memory is not None
    lock._memory.next_number = None


def watched_in(effect: Effect) -> str | None:
    """The node that a flight without a create watches: the own one, where nobody else is there."""
    if not isinstance(effect, Flight) or contender_in(effect):
        return None
    return next((each.path for each in effect.operations if isinstance(each, Get) and each.watch), None)


@pytest.fixture
def guid(monkeypatch: pytest.MonkeyPatch) -> str:
    """The GUID of the test's acquisitions, known beforehand."""
    guid = uuid.uuid4().hex
    monkeypatch.setattr(_lock_base, "fresh_id", lambda: guid)
    return guid


@pytest.fixture
def dying(lock: FencedLock, other_zk: KazooClient, guid: str) -> str:
    """A node with the very GUID that will be looked for, of a session that a server still shows."""
    with lock as grant:
        counter = grant.path.rpartition("/")[0]
    return other_zk.create(f"{counter}/x-", lock._contender(guid), ephemeral=True, sequence=True)


def test_a_node_with_the_same_guid_of_another_session_is_not_adopted(
    lock: FencedLock, other_zk: KazooClient, nodes: Nodes, faults: Faults, dying: str, in_background: Start,
    eventually: Eventually,
) -> None:  # fmt: skip
    faults.lost_requests = 1
    waiting = in_background(lambda: lock.acquire(timeout=15))
    eventually(lambda: len(nodes.contenders("a")) == 2, "a node of its own stands behind the dying one")
    assert not waiting.done, "it must not hold the lock on somebody else's node"
    other_zk.delete(dying)
    grant: zkfence.Grant = waiting.result()
    assert nodes.contenders("a") == [grant.path] != [dying]
    grant.release()


def test_leaving_touches_no_node_of_another_session(
    lock: FencedLock, nodes: Nodes, faults: Faults, dying: str, eventually: Eventually
) -> None:
    faults.raise_at, faults.after_sending = len(faults.effects) + 1, False  # the create, behind Ready
    with pytest.raises(KeyboardInterrupt):
        lock.acquire(timeout=15)
    eventually(lambda: not lock._session._errands_running, "the background has cleared up")
    assert nodes.contenders("a") == [dying]


def test_a_node_of_another_acquisition_of_the_same_session_is_not_adopted(
    lock: FencedLock, nodes: Nodes, faults: Faults
) -> None:
    with lock as grant:
        faults.lost_requests = 1
        assert lock.try_acquire() is None
        grant.check()
        assert nodes.contenders("a") == [grant.path]


def test_a_node_that_is_gone_before_the_decision_is_no_grant(
    lock: FencedLock, other_zk: KazooClient, nodes: Nodes, faults: Faults
) -> None:
    lock.acquire().release()
    forget_the_number(lock)
    deleted: list[str] = []

    def delete_own_node(effect: Effect) -> None:
        own = watched_in(effect)
        if own and not deleted:
            deleted.append(own)
            other_zk.delete(own)

    faults.before = delete_own_node
    with lock.acquire(timeout=10) as grant:
        assert deleted
        assert nodes.contenders("a") == [grant.path] != deleted


def test_a_node_of_a_session_that_is_over_is_no_grant_even_while_a_server_shows_it(
    lock: FencedLock, zk: KazooClient, nodes: Nodes, faults: Faults, in_background: Start, eventually: Eventually
) -> None:
    lock.acquire().release()
    forget_the_number(lock)
    session = lock._session
    real = session.session_id
    shown: list[str] = []

    def lose_the_session_once(effect: Effect) -> None:
        own = watched_in(effect)
        if contender_in(effect):
            session._session_id = real
        elif own and not shown:
            shown.append(own)
            session._session_id = None

    faults.before = lose_the_session_once
    waiting = in_background(lambda: lock.acquire(timeout=15))
    eventually(lambda: len(nodes.contenders("a")) == 2, "it stands in line anew")
    assert not waiting.done
    zk.delete(shown[0])
    grant: zkfence.Grant = waiting.result()
    assert [grant.path] == nodes.contenders("a")
    grant.release()


def test_an_acquisition_with_lost_replies_that_gives_up_leaves_nothing(
    lock: FencedLock, other: FencedLock, nodes: Nodes, faults: Faults, eventually: Eventually
) -> None:
    with other as grant:
        for _ in range(10):
            faults.lost_replies = 1
            assert lock.try_acquire() is None
        eventually(lambda: nodes.contenders("a") == [grant.path], "only the holder is there", within=2.0)


def remake(lock: FencedLock, zk: KazooClient, namespace: str) -> zkfence.Grant:
    """Delete the whole namespace and let ``lock`` make it anew: its first node has the path that the old one had."""
    zk.delete(namespace, recursive=True)
    return lock.acquire(timeout=10)


def test_a_late_release_deletes_nothing_of_a_namespace_that_was_made_anew(
    lock: FencedLock, other: FencedLock, zk: KazooClient, nodes: Nodes, zkfence_namespace: str
) -> None:
    old = lock.acquire()
    new = remake(other, zk, zkfence_namespace)
    assert new.path == old.path
    assert old.lost.wait(1)
    old.release()
    assert nodes.contenders("a") == [new.path]
    new.release()


def test_a_waiter_does_not_take_a_node_at_its_old_path_for_its_own(
    lock: FencedLock, other: FencedLock, zk: KazooClient, nodes: Nodes, faults: Faults, zkfence_namespace: str,
    in_background: Start, eventually: Eventually,
) -> None:  # fmt: skip
    """All of it happens while the waiter does not look: it is between its create and its first look at the node."""
    made: list[zkfence.Grant] = []

    def remake_behind_its_back(effect: Effect) -> None:
        if watched_in(effect) and not made:
            made.append(None)  # type: ignore[arg-type]  # only once: the other one comes here too
            made[0] = remake(other, zk, zkfence_namespace)

    faults.before = remake_behind_its_back
    waiting = in_background(lambda: lock.acquire(timeout=20))
    eventually(lambda: len(nodes.contenders("a")) == 2, "it stands in line anew")
    assert not waiting.done
    made[0].release()
    waiting.result().release()


def test_a_release_after_a_cut_looks_before_it_deletes(
    lock: FencedLock, other: FencedLock, zk: KazooClient, nodes: Nodes, zkfence_namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The namespace was made anew while the holder was cut off and could not be told."""
    old = lock.acquire()
    monkeypatch.setattr(Holding, "node_deleted", lambda holding, path: None)
    new = remake(other, zk, zkfence_namespace)
    assert new.path == old.path
    lock._session._connection += 1
    old.release()
    assert nodes.contenders("a") == [new.path]
    new.release()


def test_a_grant_at_the_path_of_an_older_one_is_still_told_of_its_loss(
    lock: FencedLock, zk: KazooClient, other_zk: KazooClient, zkfence_namespace: str
) -> None:
    old = lock.acquire()
    new = remake(lock, zk, zkfence_namespace)
    assert new.path == old.path
    old.release()
    other_zk.delete(new.path)
    assert new.lost.wait(1)


def test_a_node_that_goes_while_older_epochs_are_looked_at_is_no_grant(
    lock: FencedLock, other_zk: KazooClient, nodes: Nodes, faults: Faults
) -> None:
    deleted: list[str] = []

    def delete_own_node(effect: Effect) -> None:
        first = effect.operations[0] if isinstance(effect, Flight) else None
        if isinstance(first, Children) and first.path.endswith("/locks/a") and not deleted:
            deleted.extend(nodes.contenders("a"))
            other_zk.delete(deleted[0])

    faults.before = delete_own_node
    with lock.acquire(timeout=10) as grant:
        assert deleted
        assert nodes.contenders("a") == [grant.path] != deleted
