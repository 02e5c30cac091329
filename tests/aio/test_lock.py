"""The asyncio face on a real server: holding, waiting, giving up."""

from __future__ import annotations

import asyncio
import os
import pickle
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkfence
from zkfence import GrantReleased, LockTimeout, NotConnected, WouldDeadlock
from zkfence.aio import FencedLock, FencedReadLock, FencedSemaphore, FencedWriteLock, Grant
from zkfence_receivers import MemoryReceiver, StaleToken

from .conftest import Nodes


async def test_a_lock_is_held_in_two_lines(lock: FencedLock, other: FencedLock, nodes: Nodes) -> None:
    async with lock as grant:
        assert grant.token.dotted == "1.0"
        assert await other.try_acquire() is None
    async with other.acquire(timeout=5.0) as grant:
        assert grant.token.dotted == "1.2"
    async with await lock.acquire() as grant:
        assert await other.try_acquire() is None
    with pytest.raises(GrantReleased):
        grant.check()
    assert await nodes.number() == 0


async def test_a_grant_is_what_receivers_ask_for(lock: FencedLock) -> None:
    store = MemoryReceiver()
    async with lock as grant:
        report = await asyncio.to_thread(store.claim, "report-7", grant)
        await asyncio.to_thread(report.write, b"mine")
        late = grant.stamp("report-7")
    async with lock as grant:
        store.claim("report-7", grant)
    with pytest.raises(StaleToken):
        store.apply_stamped("report-7", b"late", late)


async def test_threads_and_tasks_contend_for_the_same_lock(
    lock: FencedLock, other_zk: zkfence.Client, zkfence_namespace: str
) -> None:
    of_threads = zkfence.FencedLock(other_zk, "a", namespace=zkfence_namespace)
    async with lock as grant:
        waiting = asyncio.create_task(asyncio.to_thread(of_threads.acquire, timeout=20))
        while len(await lock.contenders()) < 2:
            await asyncio.sleep(0.01)
        assert not waiting.done()
    held = await waiting
    assert held.token > grant.token
    assert await lock.try_acquire() is None
    held.release()


async def test_an_acquisition_is_a_coroutine_too(lock: FencedLock) -> None:
    task = asyncio.create_task(lock.acquire(timeout=5))
    await (await task).release()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(lock.acquire(timeout=5))
    await task.result().release()
    await (await asyncio.wait_for(lock.acquire(), 5)).release()


async def test_an_acquisition_that_is_not_awaited_is_told_of(lock: FencedLock) -> None:
    with pytest.warns(RuntimeWarning, match="never awaited"):
        lock.acquire()


async def test_who_holds_and_who_waits(lock: FencedLock, other: FencedLock, nodes: Nodes) -> None:
    assert await lock.holder() is None
    async with lock as grant:
        waiting = asyncio.create_task(other.acquire())
        await nodes.become(2)
        first, second = await other.contenders()
        assert (first.holds, first.token, first.holder, first.pid) == (True, grant.token, grant.holder, os.getpid())
        assert not second.holds
        assert await other.holder() == first
    await (await waiting).release()


async def test_a_timeout_is_met_and_leaves_no_node(lock: FencedLock, other: FencedLock, nodes: Nodes) -> None:
    async with lock:
        started = time.monotonic()
        with pytest.raises(LockTimeout) as caught:
            await other.acquire(timeout=0.3)
        assert 0.3 <= time.monotonic() - started < 3
        assert (caught.value.lock_name, caught.value.timeout) == ("a", 0.3)
        await nodes.become(1, within=1)
        with pytest.raises(LockTimeout):
            await other.acquire(timeout=0)


async def test_each_of_many_gives_up_at_its_own_deadline_while_predecessors_leave_one_by_one(
    lock: FencedLock, nodes: Nodes
) -> None:
    """One deadline for a whole call: it does not begin anew with each predecessor."""
    deadlines = [0.5 + 0.01 * number for number in range(100)]

    async def wait(timeout: float) -> float:
        started = time.monotonic()
        with pytest.raises(LockTimeout):
            await lock.acquire(timeout=timeout)
        return time.monotonic() - started

    async with lock:
        took = await asyncio.gather(*(wait(timeout) for timeout in deadlines))
        for timeout, seconds in zip(deadlines, took, strict=True):
            assert timeout <= seconds < timeout + 1
        await nodes.become(1, within=2)


@pytest.mark.parametrize("timeout", [0, 1e10, float("inf")])
async def test_any_timeout_gets_a_free_lock(lock: FencedLock, timeout: float) -> None:
    await (await lock.acquire(timeout=timeout)).release()


async def test_bad_options_are_refused_at_once(zk: zkfence.Client, lock: FencedLock) -> None:
    with pytest.raises(ValueError, match="timeout"):
        lock.acquire(timeout=-1)
    with pytest.raises(TypeError, match="connect"):
        FencedLock("127.0.0.1:2181", "a")  # type: ignore[arg-type]
    with pytest.raises(zkfence.InvalidName):
        FencedLock(zk, "")


@pytest.mark.parametrize("name", ["sequential_gevent_handler", "sequential_eventlet_handler"])
def test_a_client_on_greenlets_is_refused(name: str) -> None:
    client = KazooClient("127.0.0.1:1")
    client.handler.name = name
    with pytest.raises(TypeError, match="asyncio needs a client with kazoo's own threads"):
        FencedLock(client, "a")


async def test_a_client_that_was_never_started_is_told_of() -> None:
    with pytest.raises(NotConnected, match="start"):
        await FencedLock(KazooClient("127.0.0.1:1"), "a").acquire()


async def test_a_client_that_is_closed_while_it_waits_ends_the_wait(
    lock: FencedLock, connect: Callable[..., zkfence.Client], zkfence_namespace: str, nodes: Nodes
) -> None:
    client = connect()
    async with lock:
        waiting = asyncio.create_task(FencedLock(client, "a", namespace=zkfence_namespace).acquire())
        await nodes.become(2)
        await asyncio.to_thread(client.stop)
        with pytest.raises(NotConnected):
            await asyncio.wait_for(waiting, 5)
        await nodes.become(1)


async def test_a_task_that_would_wait_for_itself_is_told(lock: FencedLock, nodes: Nodes) -> None:
    async with lock:
        with pytest.raises(WouldDeadlock):
            await lock.acquire()
        assert await lock.try_acquire() is None
        other_task = asyncio.create_task(lock.acquire())  # may wait: the holder is another task
        await nodes.become(2)
    await (await other_task).release()


async def test_a_reentrant_lock_gives_its_holder_the_same_token(
    zk: zkfence.Client, zkfence_namespace: str, nodes: Nodes
) -> None:
    lock = FencedLock(zk, "a", namespace=zkfence_namespace, reentrant=True)
    async with lock as outer:
        async with lock as inner:
            assert inner.token == outer.token
            assert await asyncio.create_task(lock.try_acquire()) is None
        with pytest.raises(GrantReleased):
            inner.check()
        outer.check()
        assert await nodes.number() == 1
    assert await nodes.number() == 0


async def test_readers_hold_side_by_side_and_a_writer_alone(
    zk: zkfence.Client, zkfence_namespace: str, nodes: Nodes
) -> None:
    reader = FencedReadLock(zk, "a", namespace=zkfence_namespace)
    writer = FencedWriteLock(zk, "a", namespace=zkfence_namespace)
    readers = await asyncio.gather(*(asyncio.create_task(reader.acquire()) for _ in range(10)))
    writing = asyncio.create_task(writer.acquire())
    await nodes.become(11)
    late_reader = asyncio.create_task(reader.acquire())
    await nodes.become(12)
    for grant in readers[1:]:
        await grant.release()
    assert not writing.done()
    await readers[0].release()
    written = await writing
    assert not late_reader.done()
    await written.release()
    await (await late_reader).release()
    assert await nodes.number() == 0


async def test_a_semaphore_has_as_many_holders_as_permits_each_in_its_slot(
    zk: zkfence.Client, zkfence_namespace: str, nodes: Nodes
) -> None:
    semaphore = FencedSemaphore(zk, "a", permits=3, namespace=zkfence_namespace)
    slots: list[int | None] = []
    most = 0

    async def work() -> None:
        nonlocal most
        async with semaphore as grant:
            assert grant.slot not in slots
            slots.append(grant.slot)
            most = max(most, len(slots))
            await asyncio.sleep(0.01)
            slots.remove(grant.slot)

    async with asyncio.TaskGroup() as group:
        for _ in range(30):
            group.create_task(work())
    assert most == 3
    grants = [await semaphore.acquire() for _ in range(3)]
    with pytest.raises(WouldDeadlock):
        await semaphore.acquire()
    for grant in grants:
        await grant.release()
    await nodes.become(0)


async def test_a_second_release_does_nothing(lock: FencedLock, other: FencedLock, nodes: Nodes) -> None:
    grant = await lock.acquire()
    await grant.release()
    async with other:
        await grant.release()
        assert await nodes.number() == 1


async def test_a_lock_may_be_left_in_another_task_than_it_was_entered_in(lock: FencedLock, nodes: Nodes) -> None:
    """As the teardown of many a fixture does."""
    stack = AsyncExitStack()
    await asyncio.create_task(stack.enter_async_context(lock))
    assert await nodes.number() == 1
    await asyncio.create_task(stack.aclose())
    assert await nodes.number() == 0


async def test_leaving_a_lock_that_nobody_has_entered_is_told_of(lock: FencedLock) -> None:
    async with lock:
        with pytest.raises(RuntimeError, match="not entered"):
            await asyncio.create_task(lock.__aexit__(None, None, None))


async def test_a_grant_is_not_pickled(lock: FencedLock) -> None:
    async with lock as grant:
        with pytest.raises(TypeError, match="stamp"):
            pickle.dumps(grant)


def test_two_loops_in_two_threads_share_a_client_and_a_lock(lock: FencedLock, zk: zkfence.Client) -> None:
    tokens: list[int] = []
    holders: list[Grant] = []

    async def contend() -> None:
        async def once() -> None:
            async with lock as grant:
                holders.append(grant)
                assert len(holders) == 1
                tokens.append(grant.token)
                holders.pop()

        async with asyncio.TaskGroup() as group:
            for _ in range(50):
                group.create_task(once())

    async def main() -> None:
        await asyncio.gather(contend(), asyncio.to_thread(asyncio.run, contend()))

    asyncio.run(main())
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 100


async def test_the_face_is_found_where_it_was_not_imported(zk: Any) -> None:
    assert zkfence.aio.FencedLock is FencedLock
