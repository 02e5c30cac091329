"""Many locks: room for them in a session, what one takes in the client, how they are opened; and many acquisitions."""

from __future__ import annotations

import gc
import random
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkfence
from zkfence import FencedLock, FencedSemaphore, Grant, LockTimeout, TooManyLocks, _ledger
from zkfence.testing import LocalEnsemble

from .conftest import Faults, Nodes

Connect = Callable[..., zkfence.Client]
Eventually = Callable[..., None]

# --- room in a session ------------------------------------------------------------------------------------------


@pytest.fixture
def room_for_three(monkeypatch: pytest.MonkeyPatch, zkfence_namespace: str) -> int:
    path = f"{zkfence_namespace}/locks/l-0/1/x-0000000000"
    limit = 3 * (len(path) + 4) + 10
    monkeypatch.setattr(_ledger, "LIMIT", limit)
    return limit


def lock_number(client: zkfence.Client, namespace: str, number: int) -> FencedLock:
    return FencedLock(client, f"l-{number}", namespace=namespace)


def taken(client: zkfence.Client, namespace: str) -> int:
    return lock_number(client, namespace, 0)._session.ledger._taken


def test_a_session_that_is_full_says_so_and_sends_nothing(
    zk: zkfence.Client, other_zk: zkfence.Client, zkfence_namespace: str, nodes: Nodes, room_for_three: int
) -> None:
    grants = [lock_number(zk, zkfence_namespace, number).acquire(timeout=10) for number in range(3)]
    fourth = lock_number(zk, zkfence_namespace, 3)
    for acquire in (fourth.acquire, fourth.try_acquire, lambda: fourth.acquire(timeout=1)):
        with pytest.raises(TooManyLocks) as caught:
            acquire()
        assert (caught.value.lock_name, caught.value.limit) == ("l-3", room_for_three)
    assert nodes.contenders("l-3") == []
    lock_number(other_zk, zkfence_namespace, 3).acquire(timeout=10).release()
    for grant in grants:
        grant.check()
    grants.pop().release()
    grants.append(fourth.acquire(timeout=10))
    for grant in grants:
        grant.release()
    assert taken(zk, zkfence_namespace) == 0


def test_there_is_room_again_after_a_loss(
    zk: zkfence.Client, other_zk: KazooClient, zkfence_namespace: str, room_for_three: int,
    end_session: Callable[[KazooClient], None], eventually: Eventually,
) -> None:  # fmt: skip
    grants = [lock_number(zk, zkfence_namespace, number).acquire(timeout=10) for number in range(3)]
    other_zk.delete(grants[0].path)
    assert grants[0].lost.wait(2)
    again = lock_number(zk, zkfence_namespace, 0).acquire(timeout=10)
    grants[0].release()
    with pytest.raises(TooManyLocks):
        lock_number(zk, zkfence_namespace, 3).acquire(timeout=10)
    end_session(zk)
    assert again.lost.wait(10)
    for number in range(3):
        grants.append(lock_number(zk, zkfence_namespace, number).acquire(timeout=10))
    for grant in (*grants, again):
        grant.release()
        grant.release()
    eventually(lambda: taken(zk, zkfence_namespace) == 0, "every node's room is given back, once")


def test_what_ends_without_a_grant_takes_no_room(
    zk: zkfence.Client, other_zk: zkfence.Client, zkfence_namespace: str, faults: Faults, room_for_three: int,
    eventually: Eventually,
) -> None:  # fmt: skip
    lock = lock_number(zk, zkfence_namespace, 0)
    with lock_number(other_zk, zkfence_namespace, 0):
        for _ in range(5):
            assert lock.try_acquire() is None
            with pytest.raises(LockTimeout):
                lock.acquire(timeout=0.03)
        faults.effects.clear()
        faults.raise_at = 1
        with pytest.raises(KeyboardInterrupt):
            lock.acquire(timeout=10)
        faults.raise_at = None
        faults.lost_replies = faults.lost_requests = 1
        assert lock.try_acquire() is None
        eventually(lambda: taken(zk, zkfence_namespace) == 0, "all the room is given back")


def test_a_semaphore_takes_room_for_permit_and_slot(
    zk: zkfence.Client, zkfence_namespace: str, room_for_three: int, nodes: Nodes, eventually: Eventually
) -> None:
    lock = FencedSemaphore(zk, "l", permits=2, namespace=zkfence_namespace)
    with lock.acquire(timeout=10):
        held = nodes.contenders("l")
        with pytest.raises(TooManyLocks):  # there is room for the permit, and none for the slot
            lock.acquire(timeout=10)
        eventually(lambda: nodes.contenders("l") == held, "the permit is left")
    eventually(lambda: taken(zk, zkfence_namespace) == 0, "all the room is given back")


def test_room_is_counted_in_bytes_and_not_in_characters(
    connect: Callable[..., zkfence.Client], zk: zkfence.Client, zkfence_namespace: str
) -> None:
    chroot = f"{zkfence_namespace}-锁"
    zk.create(chroot)
    client = connect(chroot)
    lock = FencedLock(client, "a", namespace="/命名空间")
    with lock.acquire(timeout=10) as grant:
        assert taken(client, "/命名空间") == len((chroot + grant.path).encode()) + 4
    zk.delete(chroot, recursive=True)


@pytest.fixture
def ensemble() -> Iterator[LocalEnsemble]:
    with LocalEnsemble(nodes=3) as ensemble:
        yield ensemble


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_full_session_ends_and_the_ensemble_lives(ensemble: LocalEnsemble) -> None:
    """Long names, so that it is full soon. What counts is the length of all paths together."""
    client = zkfence.connect(ensemble.hosts, session_timeout=30.0)
    held = []
    try:
        while True:
            held.append(FencedLock(client, f"{len(held):06d}".ljust(220, "x")).acquire(timeout=60))
    except TooManyLocks:
        pass
    assert len(held) > 3000
    client.stop()
    client.close()
    ensemble.wait_for_quorum()
    for node in ensemble.nodes:
        with zkfence.connect(node.address) as other:
            lock = FencedLock(other, "000000".ljust(220, "x"))
            assert lock.acquire(timeout=60).token > held[0].token


# --- what a held lock takes in the client -----------------------------------------------------------------------


def hold_many(client: zkfence.Client, namespace: str, numbers: range) -> list[Grant]:
    return [FencedLock(client, f"reports/{number:06d}", namespace=namespace).acquire(timeout=60) for number in numbers]


def test_a_held_lock_takes_little_memory(zk: zkfence.Client) -> None:
    """The lock, its grant, and kazoo's watch, which alone is a quarter of it; without the text of its name."""
    number, before_that = 150, 180  # the dictionaries have just grown, and will not again
    some = hold_many(zk, "/m", range(before_that))
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        grants = hold_many(zk, "/m", range(before_that, before_that + number))
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    name = 64
    assert (after - before) / number - name < 1600  # 1,500, and what else happens meanwhile
    for grant in (*some, *grants):
        grant.release()
    zk.delete("/m", recursive=True)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_locks_are_held_over_several_sessions(ensemble: LocalEnsemble) -> None:
    number, sessions = 100_000, 8
    clients = [zkfence.connect(ensemble.hosts, session_timeout=40.0) for _ in range(sessions)]
    gc.collect()
    before = resident_bytes()
    with ThreadPoolExecutor(sessions) as threads:
        share = number // sessions
        parts = [
            threads.submit(hold_many, client, "/m", range(part * share, (part + 1) * share))
            for part, client in enumerate(clients)
        ]
        grants = [grant for part in parts for grant in part.result()]
    gc.collect()
    assert len({grant.token for grant in grants}) == number
    assert (resident_bytes() - before) / number < 2500  # what the allocator has kept of each acquisition is in it
    for grant in grants:
        grant.check()
    for client in clients:
        client.stop()
        client.close()
    ensemble.wait_for_quorum()
    with zkfence.connect(ensemble.hosts) as other:
        assert FencedLock(other, "reports/000000", namespace="/m").acquire(timeout=60).token > grants[0].token


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


# --- opening many -----------------------------------------------------------------------------------------------


def open_at_once(connect: Connect, namespace: str, clients: int, names: int) -> list[zkfence.Token]:
    """Each client opens its share of the names, all of them at the same time."""
    barrier = threading.Barrier(clients)

    def open_share(number: int) -> list[zkfence.Token]:
        client = connect(session_timeout=40.0)
        mine = list(range(number, names, clients))
        random.shuffle(mine)
        barrier.wait(60)
        tokens = []
        for each in mine:
            with FencedLock(client, f"job-{each}", namespace=namespace).acquire(timeout=300) as grant:
                tokens.append(grant.token)
        return tokens

    with ThreadPoolExecutor(clients) as threads:
        return [token for tokens in threads.map(open_share, range(clients)) for token in tokens]


@pytest.mark.parametrize(
    ("clients", "names"), [(8, 160), pytest.param(32, 10_000, marks=[pytest.mark.long, pytest.mark.timeout(1800)])]
)
def test_many_names_that_are_opened_at_once_get_an_epoch_each(
    connect: Connect, zk: KazooClient, zkfence_namespace: str, clients: int, names: int
) -> None:
    tokens = open_at_once(connect, zkfence_namespace, clients, names)
    assert len({token.epoch for token in tokens}) == names
    assert zk.get(f"{zkfence_namespace}/epoch")[0] == str(names).encode()


# --- many acquisitions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cycles", [1000, pytest.param(10_000, marks=pytest.mark.long)])
def test_acquisitions_leave_nothing_behind_in_the_process(
    zk: zkfence.Client, other_zk: zkfence.Client, zkfence_namespace: str, cycles: int, eventually: Eventually
) -> None:
    locks: list[Any] = [
        FencedLock(zk, "a", namespace=zkfence_namespace),
        FencedLock(other_zk, "a", namespace=zkfence_namespace),
        zkfence.FencedReadLock(zk, "b", namespace=zkfence_namespace),
        FencedSemaphore(other_zk, "c", permits=2, namespace=zkfence_namespace),
    ]
    sessions = {lock._session for lock in locks}
    descriptors = Path("/proc/self/fd") if Path("/proc/self/fd").exists() else Path("/dev/fd")

    def counts() -> dict[str, int]:
        return {
            "threads": threading.active_count(),
            "watches": sum(
                len(watchers) for session in sessions for watchers in session.client._data_watchers.values()
            ),
            "listeners": sum(len(session.client.state_listeners) for session in sessions),
            "descriptors": sum(1 for _ in descriptors.iterdir()),
            "held": sum(len(session._held) + len(session._owned) for session in sessions),
            "waiting": sum(len(session._wakers) for session in sessions),
            "room": sum(session.ledger._taken for session in sessions),
        }

    for lock in locks:
        lock.acquire(timeout=10).release()
    before = counts()
    for number in range(cycles):
        locks[number % 25 % len(locks) if number % 25 < 8 else 0].acquire(timeout=10).release()
    before["descriptors"] += 4  # kazoo makes one for each of its waits
    for what, number in before.items():
        eventually(lambda what=what, number=number: counts()[what] <= number, f"no more than {number} {what}")
