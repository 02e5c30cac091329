"""Thousands of tasks on one session: in order, without a thread each, and without blocking the event loop."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from zkfence import LockTimeout
from zkfence._core._operations import Children, Operation
from zkfence._kazoo import Answers, Kazoo
from zkfence._session import Session
from zkfence.aio import FencedLock, Grant
from zkfence.aio._runway import LIMIT, Runway
from zkfence.aio._tasks import Driver
from zkfence.testing import LocalEnsemble

from .conftest import Nodes, Ticker, eventually

PAUSE = 4.0  # seconds for which the server stands still, at most
STALL = 2.0  # far less than that


def threads() -> int:
    """How many there are, without those in which the tests look at nodes."""
    return sum(not thread.name.startswith("asyncio_") for thread in threading.enumerate())


@asynccontextmanager
async def deaf(ensemble: LocalEnsemble, client: KazooClient) -> AsyncIterator[None]:
    """The server stands still, and what is sent to it is soon stuck: kazoo's connection thread too."""
    connection = client._connection
    connection._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # type: ignore[attr-defined]
    (server,) = ensemble.nodes
    # From a thread: a loop that is blocked would wait for the server for ever.
    resumption = threading.Timer(PAUSE, server.resume)
    server.pause()
    resumption.start()
    try:
        yield
    finally:
        resumption.cancel()
        resumption.join()
        server.resume()


async def start(lock: FencedLock, number: int, timeout: float) -> list[asyncio.Task[Grant]]:
    """Tasks that acquire. Nothing is sent to the server in between, but the loop has a chance to breathe."""
    tasks = []
    for _ in range(number):
        tasks.append(asyncio.create_task(lock.acquire(timeout=timeout)))
        if len(tasks) % 100 == 0:
            await asyncio.sleep(0)
    return tasks


async def test_a_thousand_tasks_are_served_in_the_order_in_which_they_came_without_threads_or_stalls(
    zkfence_zk: KazooClient, zkfence_namespace: str, zkfence_ensemble: LocalEnsemble, nodes: Nodes
) -> None:
    lock = FencedLock(zkfence_zk, "a", namespace=zkfence_namespace)
    served: list[int] = []
    tokens: list[int] = []
    most = 0

    async def wait(number: int) -> None:
        nonlocal most
        async with lock as grant:
            served.append(number)
            tokens.append(grant.token)
            most = max(most, threads())

    async with asyncio.TaskGroup() as group, lock:
        before = threads()
        for number in range(1000):
            group.create_task(wait(number))
        await nodes.become(1001, within=30)
        assert threads() <= before
        async with deaf(zkfence_ensemble, zkfence_zk), Ticker() as ticker:
            asking = [asyncio.create_task(lock.holder()) for _ in range(300)]
            await asyncio.sleep(1.5)
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        assert not served
    assert ticker.longest < STALL
    assert served == list(range(1000))
    assert tokens == sorted(tokens)
    assert most <= before + 1 < 20  # one for errands


async def test_2000_acquisitions_on_a_stock_client_do_not_block_the_loop_while_the_server_stands_still(
    zkfence_zk: KazooClient, zkfence_namespace: str, zkfence_ensemble: LocalEnsemble, nodes: Nodes
) -> None:
    """kazoo's pipe holds some 270 requests, and the next one waits in the middle of the event loop."""
    lock = FencedLock(zkfence_zk, "a", namespace=zkfence_namespace)
    async with lock:
        async with deaf(zkfence_ensemble, zkfence_zk), Ticker() as ticker:
            results = await asyncio.gather(*await start(lock, 2000, timeout=1.5), return_exceptions=True)
        assert {type(result) for result in results} == {LockTimeout}
        await nodes.become(1, within=20)
        await eventually(lambda: not Runway.of(lock._session)._in_use, "every answer has arrived")
    assert ticker.longest < STALL


async def test_a_pipe_that_others_have_filled_does_not_block_the_loop(
    zkfence_zk: KazooClient, zkfence_namespace: str, zkfence_ensemble: LocalEnsemble, nodes: Nodes
) -> None:
    lock = FencedLock(zkfence_zk, "a", namespace=zkfence_namespace)
    async with lock:
        async with deaf(zkfence_ensemble, zkfence_zk), Ticker() as ticker:
            stuck = [zkfence_zk.get_async("/" + "x" * 900_000)]  # more than the kernel takes
            stuck += [zkfence_zk.get_async("/x") for _ in range(200)]
            tasks = await start(lock, 500, timeout=1.5)
            await asyncio.gather(*tasks, return_exceptions=True)
        await eventually(lambda: all(request.ready() for request in stuck), "the others' requests are answered", 20)
        await nodes.become(1, within=20)
    assert ticker.longest < STALL


async def test_a_crowd_that_arrives_at_once_does_not_wake_at_once(
    zkfence_zk: KazooClient, zkfence_namespace: str, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them have guessed the same name for their node, and watch it; and then it goes."""
    lock = FencedLock(zkfence_zk, "a", namespace=zkfence_namespace)
    sent: list[Operation] = []
    send = Kazoo.send

    def record(kazoo: Kazoo, operations: Sequence[Operation], *arguments: Any) -> Answers:
        sent.extend(operations)
        return send(kazoo, operations, *arguments)

    async def use() -> None:
        async with lock:
            pass

    async with asyncio.TaskGroup() as group, lock:
        for _ in range(200):
            group.create_task(use())
        await nodes.become(201, within=30)
        monkeypatch.setattr(Kazoo, "send", record)
    assert sum(isinstance(operation, Children) for operation in sent) <= 40  # where few are left, it is cheaper


async def test_a_newcomer_does_not_overtake_a_task_that_is_about_to_send() -> None:
    session = Session.of(client := KazooClient("127.0.0.1:1"))
    runway = Runway.of(session)
    reserved: list[str] = []

    async def reserve(name: str) -> None:
        await Driver(session, None)._reserve(3)
        reserved.append(name)

    full = runway.enter(LIMIT, lambda: None)
    first = asyncio.create_task(reserve("first"))
    await asyncio.sleep(0)
    runway.leave(full)  # there is room for both, and the first is being woken
    await asyncio.gather(asyncio.create_task(reserve("newcomer")), first)
    assert reserved == ["first", "newcomer"]
    client.close()


async def test_no_more_than_the_limit_is_in_flight(
    zkfence_zk: KazooClient, zkfence_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = FencedLock(zkfence_zk, "a", namespace=zkfence_namespace)
    runway = Runway.of(lock._session)
    most = 0
    enter = runway.enter

    def watch(requests: int, ring: object) -> object:
        nonlocal most
        slot = enter(requests, ring)  # type: ignore[arg-type]
        most = max(most, runway._in_use)
        return slot

    async with lock:
        monkeypatch.setattr(runway, "enter", watch)
        assert not any(await asyncio.gather(*(lock.try_acquire() for _ in range(100))))
    assert LIMIT / 2 < most <= LIMIT
    assert runway._in_use == 0


async def test_many_cycles_let_nothing_grow(zkfence_zk: KazooClient, zkfence_namespace: str) -> None:
    lock = FencedLock(zkfence_zk, "a", namespace=zkfence_namespace)
    session = lock._session

    async def cycle(times: int) -> None:
        for _ in range(times):
            async with lock:
                pass

    def sizes() -> list[int]:
        watches = sum(len(watchers) for watchers in zkfence_zk._data_watchers.values())  # type: ignore[attr-defined]
        return [
            threads(), watches, len(list(Path("/dev/fd").iterdir())),
            len(zkfence_zk.state_listeners), len(session._wakers), len(session._held), len(session._owned),  # type: ignore[attr-defined]
        ]  # fmt: skip

    await cycle(20)
    before = await asyncio.to_thread(sizes)
    await asyncio.gather(*(asyncio.create_task(cycle(10)) for _ in range(20)))
    await eventually(
        lambda: all(now <= then for now, then in zip(sizes(), before, strict=True)), f"{before}, {sizes()}"
    )
