"""What the tests of the asyncio face share. A test that is a coroutine function runs in a loop of its own."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, suppress
from typing import Any, Generic, TypeVar

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

import zkfence
from zkfence.aio import FencedLock
from zkfence.testing import LocalEnsemble

T = TypeVar("T")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture(scope="session")
def zkfence_ensemble() -> Iterator[LocalEnsemble]:
    """A server of our own: these tests make it stand still, and their crowds need not wait for a disk."""
    with LocalEnsemble(durable=False) as ensemble:
        yield ensemble


@pytest.fixture
def connect(zkfence_ensemble: LocalEnsemble) -> Iterator[Callable[..., zkfence.Client]]:
    """Clients on the real server, ended with the test."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(
            zkfence.connect(zkfence_ensemble.hosts, **{"session_timeout": 10.0, **options})
        )


@pytest.fixture
def zk(connect: Callable[..., zkfence.Client]) -> zkfence.Client:
    return connect()


@pytest.fixture
def other_zk(connect: Callable[..., zkfence.Client]) -> zkfence.Client:
    return connect()


@pytest.fixture
def lock(zk: zkfence.Client, zkfence_namespace: str) -> FencedLock:
    return FencedLock(zk, "a", namespace=zkfence_namespace)


@pytest.fixture
def other(other_zk: zkfence.Client, zkfence_namespace: str) -> FencedLock:
    """The same lock, in another session."""
    return FencedLock(other_zk, "a", namespace=zkfence_namespace)


class Nodes:
    """Looks at the nodes of the lock ``a`` the way an administrator would."""

    def __init__(self, zk: KazooClient, namespace: str) -> None:
        self._zk = zk
        self._locks = f"{namespace}/locks"

    def now(self) -> list[str]:
        """Every contender of every lock in the namespace (and so of a semaphore's slots)."""
        found: list[str] = []
        with suppress(NoNodeError):
            for name in self._zk.get_children(self._locks):
                for epoch in self._zk.get_children(f"{self._locks}/{name}"):
                    counter = f"{self._locks}/{name}/{epoch}"
                    found += [f"{counter}/{contender}" for contender in sorted(self._zk.get_children(counter))]
        return found

    async def number(self) -> int:
        return len(await asyncio.to_thread(self.now))

    async def become(self, number: int, within: float = 5.0) -> None:
        """Wait until there are so many contenders."""
        await eventually(lambda: len(self.now()) == number, f"{number} contenders", within)

    async def reach(self, number: int, within: float = 20.0) -> None:
        """Wait until there are at least so many contenders."""
        await eventually(lambda: len(self.now()) >= number, f"{number} contenders", within)


@pytest.fixture
def nodes(connect: Callable[..., zkfence.Client], zkfence_namespace: str) -> Nodes:
    return Nodes(connect(), zkfence_namespace)


async def eventually(condition: Callable[[], bool], what: str, within: float = 5.0) -> None:
    """``condition`` may block."""
    deadline = time.monotonic() + within
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < deadline, f"not within {within} s: {what}"
        await asyncio.sleep(0.01)


def end_session(client: KazooClient, hosts: str) -> None:
    """End the client's session on the server, behind its back."""
    twin = KazooClient(hosts, client_id=client.client_id)
    twin.start()
    twin.stop()
    twin.close()


class Interrupted(Coroutine[Any, Any, T], Generic[T]):
    """Runs a coroutine in its task, and cancels it at its ``point``-th await (from 1) that really waits.

    ``late``: in the very iteration of the loop in which what it waits for has come; otherwise while it waits.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T], point: int, *, late: bool) -> None:
        self._coroutine = coroutine
        self._point = point
        self._late = late
        self.waits = 0

    @property
    def happened(self) -> bool:
        return self.waits >= self._point

    def send(self, value: Any) -> Any:
        if self._late and self.waits == self._point:
            self._point = 0
            return self._coroutine.throw(asyncio.CancelledError())
        waits_for = self._coroutine.send(value)
        self.waits += 1
        task = asyncio.current_task()
        if not self._late and self.waits == self._point and task is not None:
            asyncio.get_running_loop().call_soon(task.cancel)
        return waits_for

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Any:
        raise NotImplementedError("to be run as a task")


class Ticker:
    """A task that measures for how long the event loop did nothing else."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def __aenter__(self) -> Ticker:
        self._task = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _tick(self) -> None:
        before = time.monotonic()
        while True:
            await asyncio.sleep(0.005)
            now = time.monotonic()
            self.longest, before = max(self.longest, now - before), now
