"""Cancellation, wherever it comes: the node is gone or the lock is owned, never neither."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import pytest

import zkfence
from zkfence import LockTimeout
from zkfence._core._operations import Children, Operation, Sync
from zkfence._kazoo import Answers, Kazoo
from zkfence.aio import FencedLock, FencedSemaphore, Grant
from zkfence.testing import LocalEnsemble

from .conftest import Interrupted, Nodes, eventually


async def acquire_and_release(lock: Any) -> None:
    grant = await lock.acquire(timeout=20)
    await grant.release()


async def try_and_release(lock: Any) -> None:
    grant = await lock.try_acquire()
    if grant is not None:
        await grant.release()


async def enter(lock: Any) -> None:
    async with lock:
        pass


async def enter_acquisition(lock: Any) -> None:
    async with lock.acquire(timeout=20):
        pass


class Interrupt(BaseException):
    """Such as Ctrl-C."""


USES = [acquire_and_release, try_and_release, enter, enter_acquisition]


@pytest.mark.parametrize("late", [False, True], ids=["while it waits", "as the answer comes"])
@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
@pytest.mark.parametrize("kind", [FencedLock, FencedSemaphore])
@pytest.mark.parametrize("use", USES)
async def test_a_cancellation_at_any_await_leaves_no_node(
    zk: zkfence.Client, zkfence_namespace: str, nodes: Nodes, use: Callable[[Any], Coroutine[Any, Any, None]],
    kind: Any, held: bool, late: bool,
) -> None:  # fmt: skip
    options = {"permits": 1} if kind is FencedSemaphore else {}
    lock = kind(zk, "a", namespace=zkfence_namespace, **options)
    holders = kind(zk, "a", namespace=zkfence_namespace, **options)
    await (await holders.acquire()).release()

    cancelled = 0
    for point in itertools.count(1):
        grant = await asyncio.create_task(holders.acquire()) if held else None
        before = await nodes.number()
        interrupted = Interrupted(use(lock), point, late=late)
        task = asyncio.create_task(interrupted)
        if grant is not None:
            # To wait for the holder is one of the awaits.
            while not task.done() and await nodes.number() == before:
                await asyncio.sleep(0.002)
            await grant.release()
        try:
            await task
        except asyncio.CancelledError:
            cancelled += 1
        await nodes.become(0, within=2)
        if not interrupted.happened:
            break
    assert cancelled, "an answer that is there already is not waited for, but not each of them is"


@pytest.mark.parametrize("how", ["timeout", "wait_for", "group"])
async def test_what_cancels_in_the_standard_library_leaves_no_node(
    lock: FencedLock, other: FencedLock, nodes: Nodes, how: str
) -> None:
    async with lock:
        if how == "timeout":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await other.acquire()
        elif how == "wait_for":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(other.acquire(), 0.1)
        else:
            with suppress(ExceptionGroup):
                async with asyncio.TaskGroup() as group:
                    for _ in range(5):
                        group.create_task(other.acquire())
                    await nodes.become(6)
                    raise ValueError
        await nodes.become(1, within=1)
    await (await other.acquire(timeout=5)).release()


async def test_500_random_cancellations_leave_no_node_and_the_lock_works(
    zk: zkfence.Client, other_zk: zkfence.Client, zkfence_namespace: str, nodes: Nodes
) -> None:
    chance = random.Random(20240229)
    locks = [FencedLock(client, "a", namespace=zkfence_namespace) for client in (zk, other_zk)]
    await (await locks[0].acquire()).release()
    inside: list[int] = []
    cancelled = granted = 0

    async def use(lock: FencedLock, number: int) -> None:
        nonlocal granted
        while True:
            async with lock:
                granted += 1
                inside.append(number)
                try:
                    assert len(inside) == 1
                    await asyncio.sleep(0)
                finally:
                    inside.remove(number)

    async def contend(lock: FencedLock, number: int) -> None:
        nonlocal cancelled
        while cancelled < 500:
            task = asyncio.create_task(use(lock, number))
            await asyncio.sleep(chance.uniform(0, 0.3))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            cancelled += 1

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(contend(locks[number % 2], number))
    assert cancelled >= 500
    assert granted
    await nodes.become(0)
    for lock in locks:
        await (await lock.acquire(timeout=2)).release()


@pytest.mark.parametrize("late", [False, True], ids=["while it waits", "as the answer comes"])
async def test_a_cancelled_release_removes_the_node_all_the_same(
    lock: FencedLock, other: FencedLock, nodes: Nodes, late: bool
) -> None:
    cancelled = False
    while not cancelled:  # an answer may be there before it is waited for
        grant = await asyncio.create_task(lock.acquire())
        try:
            await asyncio.create_task(Interrupted(grant.release(), 1, late=late))
        except asyncio.CancelledError:
            cancelled = True
    await nodes.become(0, within=2)
    await grant.release()
    await (await other.acquire(timeout=5)).release()


async def test_a_release_that_is_interrupted_before_it_sends_releases_all_the_same(
    lock: FencedLock, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupt(*arguments: object) -> None:
        raise Interrupt

    grant = await lock.acquire()
    monkeypatch.setattr("zkfence.aio._grant.leave_now", interrupt)
    with pytest.raises(Interrupt):
        await grant.release()
    await nodes.become(0, within=2)


async def test_a_release_that_was_cancelled_while_zookeeper_was_away_is_made_up_for(
    zk: zkfence.Client, lock: FencedLock, nodes: Nodes, zkfence_ensemble: LocalEnsemble
) -> None:
    grant = await lock.acquire()
    (server,) = zkfence_ensemble.nodes
    server.pause()
    try:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await grant.release()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await lock.acquire()
    finally:
        server.resume()
    await nodes.become(0, within=10)
    await (await lock.acquire(timeout=5)).release()


async def test_a_crowd_that_is_cancelled_leaves_without_looking_for_its_nodes(
    lock: FencedLock, other: FencedLock, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To look for a node costs a read per contender. So nothing is looked for that was not sent yet, or whose answer
    is about to come."""
    sent: list[Operation] = []
    send = Kazoo.send

    def record(kazoo: Kazoo, operations: Sequence[Operation], *arguments: Any) -> Answers:
        sent.extend(operations)
        return send(kazoo, operations, *arguments)

    async with other:
        await lock.try_acquire()
        tasks = [asyncio.create_task(lock.acquire()) for _ in range(600)]
        await nodes.reach(300)
        monkeypatch.setattr(Kazoo, "send", record)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await nodes.become(1, within=10)
    assert not any(isinstance(operation, Children | Sync) for operation in sent)
    assert len(sent) <= 1500


def test_the_end_of_asyncio_run_leaves_nothing(lock: FencedLock, other: FencedLock, nodes: Nodes) -> None:
    async def main() -> Grant:
        grant = await lock.acquire()
        waiting = [asyncio.create_task(other.acquire()) for _ in range(20)]
        await nodes.become(21)
        assert not any(task.done() for task in waiting)
        return grant

    grant = asyncio.run(main())
    asyncio.run(nodes.become(1, within=2))
    asyncio.run(grant.release())
    asyncio.run(nodes.become(0, within=1))


def run_until_it_waits(loop: asyncio.AbstractEventLoop, nodes: Nodes, number: int) -> None:
    loop.run_until_complete(nodes.become(number))
    loop.run_until_complete(asyncio.sleep(0.05))


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_waiter_whose_loop_was_closed_does_not_hold_up_the_line(
    lock: FencedLock, other: FencedLock, nodes: Nodes, forgotten: bool
) -> None:
    """The loop was not run to its end: nobody cancels the task, and nobody will ever go on with it."""
    closed = asyncio.new_event_loop()
    closed.set_exception_handler(lambda loop, context: None)  # it says that the task was pending
    grant = closed.run_until_complete(lock.acquire())
    waiting: list[Any] = [closed.create_task(lock.acquire()) for _ in range(3)]
    run_until_it_waits(closed, nodes, 4)
    closed.run_until_complete(closed.shutdown_default_executor())
    closed.close()
    if forgotten:
        waiting.clear()
        gc.collect()

    async def main() -> None:
        await grant.release()
        await (await other.acquire(timeout=5)).release()
        await nodes.become(0)

    asyncio.run(main())
    waiting.clear()
    gc.collect()  # while the loop is there to tell


def test_a_loop_that_was_closed_while_requests_were_under_way_disturbs_nobody(
    lock: FencedLock, nodes: Nodes, zkfence_ensemble: LocalEnsemble, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.run(acquire_and_release(lock))
    closed = asyncio.new_event_loop()
    closed.set_exception_handler(lambda loop, context: None)
    (server,) = zkfence_ensemble.nodes
    server.pause()
    try:
        waiting = [closed.create_task(lock.acquire()) for _ in range(300)]
        closed.run_until_complete(asyncio.sleep(0.05))
        closed.close()
    finally:
        server.resume()

    async def main() -> None:
        await nodes.become(0, within=10)
        await asyncio.gather(*(asyncio.create_task(acquire_and_release(lock)) for _ in range(50)))

    asyncio.run(main())
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]
    waiting.clear()
    gc.collect()


async def test_a_cancellation_is_never_taken_for_a_timeout(lock: FencedLock, other: FencedLock, nodes: Nodes) -> None:
    async with lock:
        task = asyncio.create_task(other.acquire(timeout=0.2))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(LockTimeout):
            await other.acquire(timeout=0.1)
        await nodes.become(1, within=1)


async def test_a_cancelled_connect_leaves_no_session(zkfence_ensemble: LocalEnsemble) -> None:
    def sessions() -> int:
        return zkfence_ensemble.nodes[0]._ask("cons").count("sid=0x")

    before = sessions()
    (server,) = zkfence_ensemble.nodes
    server.pause()
    try:
        task = asyncio.create_task(zkfence.aio.connect(zkfence_ensemble.hosts))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    finally:
        server.resume()
    await asyncio.sleep(0.2)
    await eventually(lambda: sessions() <= before, "no session more than before", within=5)
