"""The locks for tasks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial
from types import TracebackType
from typing import TypeVar

from kazoo.client import KazooClient

from .._core._contender import Contender, list_contenders
from .._core._kinds import EXCLUSIVE, READ
from .._core._operations import Steps
from .._errors import LockTimeout, NotConnected
from .._grant_base import GrantBase
from .._holding import State
from .._landing import DeadlinePassed
from .._lock_base import NO_ANSWER, LockBase, check_timeout
from .._owner import is_green
from .._plain_base import PlainBase
from .._semaphore_base import SemaphoreBase
from .._threads import leave_later, verify
from ._grant import Grant
from ._pending import Pending
from ._tasks import Driver, leave_now

T = TypeVar("T")


class _Lock(LockBase):
    """The face for tasks, whatever the kind."""

    __slots__ = ()

    def _check_client(self, client: KazooClient) -> None:
        super()._check_client(client)
        if is_green(client.handler):
            raise TypeError(
                f"asyncio needs a client with kazoo's own threads, not one with {type(client.handler).__name__}: "
                "make it with zkfence.aio.connect(), or without handler="
            )

    def acquire(self, *, timeout: float | None = None) -> Pending[Grant]:
        """Wait for the lock, in line: ``grant = await lock.acquire()``, or ``async with lock.acquire() as grant:``.

        ``timeout`` is in seconds and counts for the whole call; ``None`` waits for ever, 0 tries once. Raises
        `LockTimeout` at the deadline, `WouldDeadlock` where this task holds the lock already, `NotConnected` where
        the client is not started or closed, `TooManyLocks`, `AccessDenied`, and leaves nothing behind whatever is
        raised, a cancellation too; what cannot be removed at once is removed in the background. A session that is lost
        while it waits is replaced by the client's next one, at the end of the line.
        """
        check_timeout(timeout)
        return Pending(self._acquire_within(timeout), Grant.release)

    async def try_acquire(self) -> Grant | None:
        """The lock if it is free now, ``None`` if somebody holds it or waits for it.

        Raises `NotConnected` if ZooKeeper does not answer within the session timeout.
        """
        try:
            return await self._acquire(self._session.now() + self._session.session_timeout, wait=False)
        except DeadlinePassed:
            raise NotConnected(NO_ANSWER) from None

    async def contenders(self) -> Sequence[Contender]:
        """Who holds the lock and who waits for it, in the order in which they are served. A snapshot.

        Raises `NotConnected` if ZooKeeper does not answer within the session timeout.
        """
        return await self._ask(list_contenders(self._layout, self.name))

    async def holder(self) -> Contender | None:
        """Who holds the lock (the first one, where several do); ``None`` where nobody does. See `contenders`."""
        return next((contender for contender in await self.contenders() if contender.holds), None)

    async def _ask(self, steps: Steps[T]) -> T:
        session = self._session
        session.check_usable(self.name)
        try:
            with closing(steps), Driver(session, session.now() + session.session_timeout) as driver:
                return await driver.run(steps)
        except DeadlinePassed:
            raise NotConnected(NO_ANSWER) from None

    async def _acquire_within(self, timeout: float | None) -> Grant:
        grant: Grant | None = None
        if timeout == 0:
            grant = await self.try_acquire()
        else:
            with suppress(DeadlinePassed):
                grant = await self._acquire(self._deadline(timeout), wait=True)
        if grant is None:
            assert timeout is not None
            raise LockTimeout(self.name, timeout)
        return grant

    def _deadline(self, timeout: float | None) -> float | None:
        return None if timeout is None else self._session.now() + min(timeout, threading.TIMEOUT_MAX)

    async def _acquire(self, deadline: float | None, *, wait: bool) -> Grant | None:
        session = self._session
        session.check_usable(self.name)
        owner = _current_task()
        again = self._again(owner, wait=wait)
        if again is not None:
            grant = Grant(again)
            if again.state is State.HELD:
                return grant
            await grant.release()  # another loop released the last one, or it was lost, since we looked
        procedure = self._begin(wait=wait)
        driver = Driver(session, deadline, self._acl, leave=lambda: leave_later(session, procedure.attempts))
        try:
            with driver:
                try:
                    granted = await driver.run(procedure.run())
                finally:
                    self._remember(procedure)
                if granted is not None:  # from here to the caller there is no await, and so no cancellation
                    holding = self._hold(procedure, granted, owner)
                    if driver.woken:  # something changed before the grant was being told
                        session.run_errand(partial(verify, session, [holding]))
                    return Grant(holding)
            await leave_now(session, procedure.attempts)
        except BaseException:
            driver.abandon()
            raise
        return None

    async def __aenter__(self) -> Grant:
        grant = await self.acquire()
        self._enter(_current_task(), grant)
        return grant

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        grant = self._leave(_current_task())
        assert isinstance(grant, Grant)
        await grant.release()

    def _leave(self, owner: object) -> GrantBase:
        """An exit stack, or the teardown of a fixture, may leave in another task than the one that has entered."""
        entered = self._entered or {}
        if owner not in entered:
            ended = [task for task in entered if isinstance(task, asyncio.Task) and task.done()]
            if not ended:
                raise RuntimeError(
                    f"this task has not entered {self!r}: leave it where it was entered, or release the grant instead"
                )
            owner = ended[-1]
        return super()._leave(owner)


def _current_task() -> object:
    return asyncio.current_task() or object()  # a coroutine that something else runs is nobody's


class FencedLock(_Lock, PlainBase):
    """An exclusive lock on ZooKeeper for asyncio, whose every grant carries a fencing token.

    ::

        async with zkfence.aio.FencedLock(zk, "reports/7") as grant:
            report = await asyncio.to_thread(store.claim, "report-7", grant)
            await asyncio.to_thread(report.write, b"…")

    The same lock as `zkfence.FencedLock`, with the same guarantees; threads, tasks and other processes may contend for
    it side by side. ``client`` is any started KazooClient with threads, `zkfence.aio.connect`'s for example: thousands
    of tasks may wait on one, and no thread waits with them. Tasks on several event loops may share a lock.

    "Node gone or lock owned, never neither": a task that is cancelled while it acquires or releases leaves no node
    behind. What cannot be confirmed at once is confirmed in the background, as long as the session lives.

    ``reentrant=True`` is for a *task* that holds the lock. (Until Python 3.11, `asyncio.wait_for` runs what it waits
    for in a task of its own; ``timeout=`` and `asyncio.timeout` do not.) Raises `TypeError` for a client of gevent or
    eventlet.
    """

    __slots__ = ()

    _of_kind = EXCLUSIVE


class FencedWriteLock(FencedLock):
    """The writer's side of a read-write lock: waits for every reader and writer before it, and keeps out those behind.

    The same as a `FencedLock` of that name, whose guarantees it has: both may be used side by side.
    """

    __slots__ = ()


class FencedReadLock(_Lock, PlainBase):
    """The reader's side of a read-write lock: waits for the writers before it; readers hold side by side.

    See `zkfence.FencedReadLock`. Options as for `FencedLock`.
    """

    __slots__ = ()

    _of_kind = READ


class FencedSemaphore(SemaphoreBase, _Lock):
    """A lock that ``permits`` contenders may hold at the same time, each in a slot of its own.

    See `zkfence.FencedSemaphore`. A task may hold several permits, but is told by `WouldDeadlock` when it holds them
    all and wants another one.
    """

    __slots__ = ()
