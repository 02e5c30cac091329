"""How a task learns that its grant is lost."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Callable

import pytest

import zkfence
from zkfence import ForkedError, LockLost
from zkfence.aio import FencedLock, Grant
from zkfence.testing import LocalEnsemble

from .conftest import Nodes, end_session, eventually


async def test_a_deleted_node_sets_lost_and_calls_the_callbacks_on_the_loop(
    lock: FencedLock, other_zk: zkfence.Client
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_debug(True)  # so that it refuses what comes from another thread
    called: list[Grant] = []
    awaited = asyncio.Event()
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="")

    def callback(grant: Grant) -> None:
        assert asyncio.get_running_loop() is loop
        called.append(grant)

    async def coroutine(grant: Grant) -> None:
        assert asyncio.get_running_loop() is loop
        assert variable.get() == "as it was"
        async with lock as again:  # it may use the lock
            assert again.token > grant.token
        awaited.set()

    async with lock as grant:
        assert not grant.lost.is_set()
        grant.on_lost(callback)
        variable.set("as it was")
        grant.on_lost(coroutine)
        variable.set("later")
        waiting = asyncio.create_task(grant.lost.wait())
        await asyncio.sleep(0)
        await asyncio.to_thread(other_zk.delete, grant.path)
        await asyncio.wait_for(waiting, 5)
        with pytest.raises(LockLost, match="node was deleted"):
            grant.check()
        assert grant.remaining() == 0
        await asyncio.wait_for(awaited.wait(), 5)
        assert called == [grant]
    assert await lock.holder() is None


async def test_who_asks_late_is_told_at_once(lock: FencedLock, other_zk: zkfence.Client) -> None:
    grant = await lock.acquire()
    await asyncio.to_thread(other_zk.delete, grant.path)
    await eventually(lambda: grant.remaining() == 0, "it is lost")
    assert grant.lost.is_set()
    told: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
    grant.on_lost(told.set_result)
    assert await asyncio.wait_for(told, 5) is grant


async def test_a_callback_that_fails_is_logged(
    lock: FencedLock, other_zk: zkfence.Client, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(grant: Grant) -> None:
        raise ValueError("out of luck")

    async with lock as grant:
        grant.on_lost(fail)
        await asyncio.to_thread(other_zk.delete, grant.path)
        await eventually(lambda: "on_lost callback of lock 'a' failed" in caplog.text, "the log tells")


async def test_a_release_is_no_loss(lock: FencedLock) -> None:
    called: list[Grant] = []
    grant = await lock.acquire()
    grant.on_lost(called.append)
    lost = grant.lost
    await grant.release()
    async with lock:
        assert not called
        assert not lost.is_set()


async def test_a_session_that_is_lost_loses_the_grant_and_puts_the_waiters_at_the_end_of_the_line(
    lock: FencedLock, other: FencedLock, zk: zkfence.Client, nodes: Nodes, zkfence_ensemble: LocalEnsemble
) -> None:
    async with other as held:
        waiting = asyncio.create_task(lock.acquire())
        await nodes.become(2)
        other_task = asyncio.create_task(other.acquire())
        await nodes.become(3)
        await asyncio.to_thread(end_session, zk, zkfence_ensemble.hosts)
        behind = held.token.sequence + 2
        await eventually(lambda: int(nodes.now()[-1][-10:]) > behind, "it has queued anew", 10)
        await nodes.become(3)
    grant = await asyncio.wait_for(other_task, 5)
    assert not waiting.done()
    await grant.release()
    again = await asyncio.wait_for(waiting, 5)
    assert again.token > grant.token
    await asyncio.to_thread(end_session, zk, zkfence_ensemble.hosts)
    await asyncio.wait_for(again.lost.wait(), 5)
    await again.release()


async def test_an_outage_longer_than_the_lease_sets_lost(
    connect: Callable[..., zkfence.Client], zkfence_namespace: str, zkfence_ensemble: LocalEnsemble
) -> None:
    """By the deadline, and not when the servers come back."""
    lock = FencedLock(connect(session_timeout=2.0), "a", namespace=zkfence_namespace)
    async with lock as grant:
        (server,) = zkfence_ensemble.nodes
        server.pause()
        try:
            await asyncio.wait_for(grant.lost.wait(), 10)
            with pytest.raises(LockLost):
                grant.check()
        finally:
            server.resume()


def test_a_loss_after_the_loop_was_closed_disturbs_nobody(
    lock: FencedLock, other_zk: zkfence.Client, caplog: pytest.LogCaptureFixture
) -> None:
    async def hold() -> Grant:
        grant = await lock.acquire()
        grant.on_lost(print)
        assert not grant.lost.is_set()
        return grant

    grant = asyncio.run(hold())
    other_zk.delete(grant.path)
    asyncio.run(eventually(lambda: grant.remaining() == 0, "it is lost"))

    async def hold_again() -> None:
        async with lock as again:
            assert again.token > grant.token

    asyncio.run(hold_again())
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
async def test_a_forked_child_holds_nothing(lock: FencedLock, nodes: Nodes) -> None:
    async with lock as grant:
        child = os.fork()
        if not child:
            try:
                with pytest.raises(ForkedError):
                    grant.check()
                with pytest.raises(StopIteration):
                    grant.release().send(None)  # ends at once, and does nothing
                with pytest.raises(ForkedError):
                    lock.acquire().send(None)
            except BaseException:
                os._exit(1)
            os._exit(0)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        grant.check()
        assert await nodes.number() == 1
