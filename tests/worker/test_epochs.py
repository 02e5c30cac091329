"""Epochs: whatever happens to a lock's nodes, its tokens only rise."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

import zkfence
from zkfence import EpochExhausted, FencedLock, ForeignNode, NamespaceDamaged

from .conftest import Background, Nodes

Start = Callable[[Callable[[], Any]], Background]


def once(lock: FencedLock) -> zkfence.Token:
    with lock.acquire(timeout=10) as grant:
        return grant.token


def test_a_deleted_lock_comes_back_with_a_larger_epoch(
    lock: FencedLock, other: FencedLock, zk: zkfence.Client, zkfence_namespace: str
) -> None:
    first = once(lock)
    zk.delete(f"{zkfence_namespace}/locks/a", recursive=True)
    second, third = once(other), once(lock)
    assert first < second < third
    assert second.epoch == first.epoch + 1


def test_a_deleted_counter_path_is_never_made_again_under_its_epoch(
    lock: FencedLock, other: FencedLock, zk: zkfence.Client, nodes: Nodes, zkfence_namespace: str
) -> None:
    first = once(lock)
    zk.delete(f"{zkfence_namespace}/locks/a/{first.epoch}")
    second, third = once(lock), once(other)
    assert first < second < third
    assert nodes.epochs("a") == [first.epoch + 1]


def test_many_clients_that_open_at_once_agree(
    connect: Callable[..., zkfence.Client], zkfence_namespace: str, nodes: Nodes
) -> None:
    clients = [connect() for _ in range(4)]
    tokens: list[zkfence.Token] = []
    barrier = threading.Barrier(len(clients))

    def open_all(client: zkfence.Client) -> None:
        barrier.wait()
        tokens.extend(once(FencedLock(client, f"lock-{number}", namespace=zkfence_namespace)) for number in range(10))

    threads = [threading.Thread(target=open_all, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens) == 40
    epochs = [nodes.epochs(f"lock-{number}") for number in range(10)]
    assert all(len(each) == 1 for each in epochs), "every lock was opened once"
    assert len({each[0] for each in epochs}) == 10, "no epoch was issued twice"


def test_the_sequence_ends_and_tokens_go_on_rising(
    connect: Callable[..., zkfence.Client], zkfence_namespace: str, monkeypatch: pytest.MonkeyPatch, nodes: Nodes
) -> None:
    monkeypatch.setattr(FencedLock, "_ceiling", 4)
    tokens: list[int] = []
    inside: list[int] = []
    most: list[int] = []

    def contend(client: zkfence.Client) -> None:
        lock = FencedLock(client, "a", namespace=zkfence_namespace)
        for _ in range(12):
            with lock.acquire(timeout=60) as grant:
                inside.append(1)
                most.append(len(inside))
                tokens.append(grant.token)
                inside.pop()

    threads = [threading.Thread(target=contend, args=(client,)) for client in (connect(), connect()) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens) == 6 * 12
    assert tokens == sorted(set(tokens))
    assert max(most) == 1
    assert all(zkfence.Token(token).sequence < 4 for token in tokens)
    assert len(nodes.epochs("a")) >= 6 * 12 / 4
    assert nodes.contenders("a") == []


def test_a_holder_in_an_older_epoch_is_waited_for(
    lock: FencedLock, other: FencedLock, monkeypatch: pytest.MonkeyPatch, nodes: Nodes,
    in_background: Start, eventually: Callable[..., None],
) -> None:  # fmt: skip
    monkeypatch.setattr(FencedLock, "_ceiling", 1)
    with lock as grant:
        assert other.try_acquire() is None
        assert nodes.epochs("a") == [1, 2], "the roll happened under the holder"
        waiting = in_background(lambda: once(other))
        eventually(lambda: len(nodes.contenders("a")) == 2, "it stands in line, in a newer epoch")
        assert not waiting.done
    assert waiting.result() > grant.token


def test_an_unrelated_child_neither_blocks_nor_counts(
    lock: FencedLock, zk: zkfence.Client, zkfence_namespace: str
) -> None:
    first = once(lock)
    for name in ("note", "x-", "x-12", "lock-0000000000", "y-0000000000", "x-00000000001"):
        zk.create(f"{zkfence_namespace}/locks/a/{first.epoch}/{name}")
    assert once(lock) > first


def test_a_foreign_node_in_the_next_contenders_place_is_named(
    lock: FencedLock, zk: zkfence.Client, zkfence_namespace: str
) -> None:
    first = once(lock)
    foreign = f"{zkfence_namespace}/locks/a/{first.epoch}/x-0000000002"
    zk.create(foreign)
    with pytest.raises(ForeignNode, match="x-0000000002") as caught:
        once(lock)
    assert caught.value.path == foreign
    zk.delete(foreign)
    assert once(lock) > first


def test_a_foreign_node_is_named_even_if_it_is_ephemeral(
    lock: FencedLock, zk: zkfence.Client, zkfence_namespace: str
) -> None:
    first = once(lock)
    zk.create(f"{zkfence_namespace}/locks/a/{first.epoch}/x-0000000002", ephemeral=True)
    with pytest.raises(ForeignNode, match="x-0000000002"):
        once(lock)


def test_what_was_remembered_of_a_lock_that_was_rolled_does_not_stand_in_the_way(
    lock: FencedLock, zk: zkfence.Client, zkfence_namespace: str
) -> None:
    """The old counter path stands still on a name that is taken, and the lock has gone on to the next epoch."""
    first = once(lock)
    path = f"{zkfence_namespace}/locks/a"
    zk.create(f"{path}/{first.epoch}/x-0000000002")
    roll = zk.transaction()
    roll.set_data(f"{zkfence_namespace}/epoch", str(first.epoch + 1).encode())
    roll.set_data(path, json.dumps({"v": 1, "epoch": first.epoch + 1}).encode())
    roll.create(f"{path}/{first.epoch + 1}")
    roll.commit()
    zk.create(f"{path}/{first.epoch}/x-0000000003")
    with pytest.raises(ForeignNode):  # in the newer epoch now, behind what stands in the older one
        lock.acquire(timeout=5)
    zk.delete(f"{path}/{first.epoch}/x-0000000002")
    zk.delete(f"{path}/{first.epoch}/x-0000000003")
    assert once(lock).epoch == first.epoch + 1


@pytest.mark.parametrize(
    ("damage", "data"),
    [
        ("epoch", None),
        ("epoch", b""),
        ("epoch", b"seven"),
        ("epoch", b"0"),  # lower than what the lock has
        ("locks/a", b""),
        ("locks/a", b"{}"),
        ("locks/a", json.dumps({"v": 2, "epoch": 1}).encode()),
        ("locks/a", json.dumps({"v": 1, "epoch": "1"}).encode()),
        ("", json.dumps({"v": 2, "id": "x"}).encode()),
        ("", b"junk"),
    ],
)
def test_damage_is_told_and_nothing_is_changed(
    lock: FencedLock, other: FencedLock, zk: zkfence.Client, nodes: Nodes, zkfence_namespace: str, damage: str,
    data: bytes | None, eventually: Callable[..., None],
) -> None:  # fmt: skip
    once(lock)
    path = f"{zkfence_namespace}/{damage}".rstrip("/")
    if data is None:
        zk.delete(path)
    else:
        zk.set(path, data)
    with pytest.raises(NamespaceDamaged) as caught:
        once(other)
    assert caught.value.path == path
    if data is None:
        assert not zk.exists(path)
    else:
        assert zk.get(path)[0] == data
    assert nodes.epochs("a") == [1]
    eventually(lambda: nodes.contenders("a") == [], "nothing stays behind")


def test_the_last_epoch_is_told(
    lock: FencedLock, other: FencedLock, zk: zkfence.Client, zkfence_namespace: str
) -> None:
    once(lock)
    zk.set(f"{zkfence_namespace}/epoch", str(2**32 - 2).encode())
    zk.delete(f"{zkfence_namespace}/locks/a", recursive=True)
    assert once(other).epoch == 2**32 - 1
    zk.delete(f"{zkfence_namespace}/locks/a", recursive=True)
    with pytest.raises(EpochExhausted):
        once(other)


def test_a_bare_node_of_an_administrator_becomes_the_namespace(
    lock: FencedLock, zk: zkfence.Client, zkfence_namespace: str
) -> None:
    zk.create(zkfence_namespace)
    assert once(lock).dotted == "1.0"


def test_a_deep_namespace_is_made_with_its_ancestors(zk: zkfence.Client, zkfence_namespace: str) -> None:
    assert once(FencedLock(zk, "a", namespace=f"{zkfence_namespace}/team/app")).dotted == "1.0"


def test_a_chroot_holds_a_namespace_of_its_own(
    connect: Callable[..., zkfence.Client], zk: zkfence.Client, zkfence_namespace: str
) -> None:
    zk.create(zkfence_namespace)
    with FencedLock(connect(zkfence_namespace), "a").acquire(timeout=10) as grant:
        assert grant.path == "/zkfence/locks/a/1/x-0000000000"
        assert zk.exists(f"{zkfence_namespace}{grant.path}")


def test_a_chroot_that_is_not_there_is_told_of(connect: Callable[..., zkfence.Client], zkfence_namespace: str) -> None:
    with pytest.warns(UserWarning, match="chroot"):
        client = connect(zkfence_namespace)
    with pytest.raises(zkfence.MissingChroot, match="create it first"):
        FencedLock(client, "a").acquire(timeout=10)


def test_a_namespace_that_was_deleted_and_made_anew_has_another_id(
    lock: FencedLock, other: FencedLock, zk: zkfence.Client, zkfence_namespace: str
) -> None:
    def stamped(lock: FencedLock) -> str:
        with lock.acquire(timeout=10) as grant:
            return grant.stamp("r").lock

    before = stamped(lock)
    assert before == stamped(other)
    zk.delete(zkfence_namespace, recursive=True)
    after = stamped(lock)
    assert after != before
    assert after.partition("/")[2] == "a"
    assert stamped(other) == after, "what was remembered of the old namespace is not used"
