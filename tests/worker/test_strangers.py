"""Strangers: nodes that somebody else makes where a lock has its own. They neither block nor count, or are named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkfence
from zkfence import FencedLock, FencedReadLock, FencedSemaphore, FencedWriteLock, ForeignNode, Grant

from .conftest import Background, Nodes

Start = Callable[[Callable[[], Any]], Background]
Eventually = Callable[..., None]

ODD_NAMES = [
    "x", "x-", "X-0000000000", "x-000000000", "x-00000000000", "x-0000000000 ", " x-0000000000", "x-0000000000.",
    "x-٠٠٠٠٠٠٠٠٠٠", "x-０００００００００", "x-0x00000000", "x-+000000001", "x--00000001", "r-", "s-0000000000",
    "s0-0000000000", "s03-0000000000", "y-0000000000", "_c_5f-x-0000000000", "0000000000", "lock-0000000000",
    "é", "☃", "-", "%2F", "a" * 300,
]  # fmt: skip
MAKE: dict[str, Callable[[KazooClient, str], object]] = {
    "persistent": lambda zk, path: zk.create(path, b"\x00\xff"),
    "ephemeral": lambda zk, path: zk.create(path, b"{}", ephemeral=True),
    "with children": lambda zk, path: zk.create(f"{path}/x-0000000000", b"", makepath=True),
    "sequential": lambda zk, path: zk.create(f"{path}_", b'{"guid":1}', sequence=True),
    "ephemeral sequential": lambda zk, path: zk.create(f"{path}_", b"[]", ephemeral=True, sequence=True),
}
KINDS: dict[str, Callable[[zkfence.Client, str], Any]] = {
    "exclusive": lambda client, namespace: FencedLock(client, "a", namespace=namespace),
    "write": lambda client, namespace: FencedWriteLock(client, "a", namespace=namespace),
    "read": lambda client, namespace: FencedReadLock(client, "a", namespace=namespace),
    "semaphore": lambda client, namespace: FencedSemaphore(client, "a", permits=1, namespace=namespace),
}


def counter_of(nodes: Nodes, component: str = "a") -> str:
    return f"{nodes._namespace}/locks/{component}/{nodes.epochs(component)[-1]}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", MAKE)
def test_odd_names_under_the_counter_path_neither_block_nor_count(
    zk: zkfence.Client, other_zk: zkfence.Client, nodes: Nodes, zkfence_namespace: str, how: str, kind: str
) -> None:
    """Before the own node, and behind it while it is held; for a client that knows the path, and for one that does
    not."""
    lock, other = (KINDS[kind](client, zkfence_namespace) for client in (zk, other_zk))
    lock.acquire(timeout=5).release()
    counter = counter_of(nodes)
    half = len(ODD_NAMES) // 2
    for name in ODD_NAMES[:half]:
        MAKE[how](other_zk, f"{counter}/{name}")
    tokens = []
    for each in (lock, other, lock):
        with each.acquire(timeout=5) as grant:
            tokens.append(grant.token)
    with lock.acquire(timeout=5) as held:
        for name in ODD_NAMES[half:]:
            MAKE[how](other_zk, f"{counter}/{name}")
        if kind != "read":
            assert other.try_acquire() is None
        held.check()
    with other.acquire(timeout=5) as grant:
        assert [*tokens, held.token, grant.token] == sorted({*tokens, held.token, grant.token})
    assert len(other_zk.get_children(counter)) == len(ODD_NAMES), "they are all still there"


def test_waiters_are_served_in_line_with_strangers_between_them(
    lock: FencedLock, other: FencedLock, zk: zkfence.Client, nodes: Nodes, in_background: Start, eventually: Eventually
) -> None:
    holder = lock.acquire()
    counter = counter_of(nodes)
    served: list[int] = []

    def take_a_turn(number: int, lock: FencedLock) -> None:
        with lock.acquire(timeout=20):
            served.append(number)

    waiting = []
    before = len(zk.get_children(counter))
    for number in range(20):  # more than are listed at each step
        zk.create(f"{counter}/stranger-", sequence=True)
        waiting.append(in_background(lambda number=number: take_a_turn(number, (lock, other)[number % 2])))  # type: ignore[misc]
        eventually(
            lambda number=number: len(zk.get_children(counter)) == before + 2 * (number + 1), "one more is in line"
        )
    holder.release()
    for each in waiting:
        each.result()
    assert served == list(range(20))


@pytest.mark.parametrize("name", ["note", "0", "00", "007", "-1", "1.5", "٣", "²", "1e3", "4294967296", "9" * 30, "é"])
def test_odd_names_beside_the_counter_path_do_not_block(
    lock: FencedLock, other: FencedLock, zk: zkfence.Client, nodes: Nodes, zkfence_namespace: str, name: str
) -> None:
    with lock.acquire(timeout=5) as grant:
        first = grant.token
    zk.create(f"{zkfence_namespace}/locks/a/{name}")
    tokens = [first]
    for each in (other, lock):
        with each.acquire(timeout=5) as grant:
            tokens.append(grant.token)
    zk.delete(counter_of_token(zkfence_namespace, first))
    for each in (other, lock):
        with each.acquire(timeout=5) as grant:
            tokens.append(grant.token)
    assert tokens == sorted(set(tokens))
    assert tokens[-1].epoch == first.epoch + 1


def counter_of_token(namespace: str, token: zkfence.Token) -> str:
    return f"{namespace}/locks/a/{token.epoch}"


def test_a_number_beyond_every_epoch_beside_the_counter_path_does_not_block(
    lock: FencedLock, other: FencedLock, zk: zkfence.Client, zkfence_namespace: str
) -> None:
    lock.acquire(timeout=5).release()
    zk.create(f"{zkfence_namespace}/locks/a/{'9' * 4500}")
    other.acquire(timeout=5).release()


def test_a_node_in_the_place_of_the_next_counter_path_does_not_block(
    lock: FencedLock, zk: zkfence.Client, zkfence_namespace: str
) -> None:
    """As an older copy of the namespace may have it, laid over a newer one."""
    with lock.acquire(timeout=5) as grant:
        first = grant.token
    zk.create(f"{zkfence_namespace}/locks/a/{first.epoch + 1}")
    zk.delete(counter_of_token(zkfence_namespace, first))
    with lock.acquire(timeout=1) as grant:
        assert grant.token > first


@pytest.mark.parametrize("name", ["x-0000000000", "r-0000000000"])
def test_a_lasting_node_with_a_contenders_name_is_named(
    lock: FencedLock, zk: zkfence.Client, nodes: Nodes, name: str
) -> None:
    """It cannot be a contender: those are ephemeral."""
    lock.acquire(timeout=5).release()
    foreign = f"{counter_of(nodes)}/{name}"
    zk.create(foreign)
    grant: Grant | None = None
    with pytest.raises(ForeignNode, match=name) as caught:
        grant = lock.acquire(timeout=1)
    assert grant is None
    assert caught.value.path == foreign
