"""Grant: a lock that is held by a task, and its fencing token."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from .._grant_base import GrantBase
from .._holding import Holding, State
from .._threads import leave_later
from ._tasks import leave_now

_log: Final = logging.getLogger("zkfence")
_callbacks: Final[set[asyncio.Task[None]]] = set()  # an event loop alone does not keep a task alive


class Grant(GrantBase):
    """One grant of one lock. An async context manager: leaving it releases the lock.

    ``token`` is larger than that of every earlier grant of the same lock. That the grant still *holds* can never be
    known for sure: `check` and `lost` tell as soon as this process can know, and may be late. The promise is the
    receiver's: claim the resource there, and write through the handle.

    It belongs to the event loop on which it was granted; `release` works on any.
    """

    __slots__ = ("_loop", "_lost")

    def __init__(self, holding: Holding) -> None:
        super().__init__(holding)
        holding.take(self)
        self._loop = asyncio.get_running_loop()
        self._lost: asyncio.Event | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()

    @property
    def lost(self) -> asyncio.Event:
        """Set when the grant is known to be lost: its node was deleted, the session is over, or the local deadline has
        passed without an answer."""
        if self._lost is None:
            self._lost = event = asyncio.Event()
            self._holding.when_lost(lambda: self._on_loop(event.set))
            if self._holding.state is State.LOST:
                event.set()
        return self._lost

    def on_lost(self, callback: Callable[[Grant], object]) -> None:
        """Call ``callback(grant)`` once when the grant is lost, in a task of its own; at once if it is lost already.

        A coroutine that it returns is awaited. It may release and acquire. It is not called after a release.
        """
        context = contextvars.copy_context()
        was_lost = self._holding.state is State.LOST  # before the release, if there was one

        def lost() -> None:
            if was_lost or not self._is_released:
                self._on_loop(lambda: self._start(callback), context)

        self._holding.when_lost(lost)

    async def release(self) -> None:
        """Give the lock back: delete exactly the own node, and wait for the answer, for one session timeout at most.

        May be called again, and after a loss: then nothing is deleted that is not the own node. What cannot be
        confirmed goes on in the background, and so does a release that is cancelled. In a forked child it does
        nothing: the grant is the parent's. With ``reentrant=True``, the last release gives the lock back.
        """
        holding, session = self._holding, self._holding.session
        if os.getpid() != session.pid:
            return
        if self._is_released:
            return
        try:
            self._is_released = True
            if holding.give_back(self):
                session.drop(holding)
                await leave_now(session, holding.attempts)
        except BaseException:  # a cancellation while it waits, or Ctrl-C at any of these lines
            if holding.give_back(self):
                leave_later(session, holding.attempts)
            raise

    def _on_loop(self, call: Callable[[], object], context: contextvars.Context | None = None) -> None:
        with suppress(RuntimeError):  # the loop is closed: there is nobody to be told
            self._loop.call_soon_threadsafe(call, context=context)

    def _start(self, callback: Callable[[Grant], object]) -> None:
        task = self._loop.create_task(self._call(callback))
        _callbacks.add(task)
        task.add_done_callback(_callbacks.discard)

    async def _call(self, callback: Callable[[Grant], object]) -> None:
        try:
            result = callback(self)
            if inspect.isawaitable(result):
                await result
        except Exception:
            _log.exception("an on_lost callback of lock %r failed", self.lock_name)
