"""Result: the answer to one request, to be waited for."""

from __future__ import annotations

import logging
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Queue
from typing import Any, Final, Protocol

from kazoo.handlers.threading import KazooTimeoutError

_log: Final = logging.getLogger("zkfence")


class Completions(Protocol):
    """The handler: it runs users' callbacks in a thread of their own."""

    completion_queue: Queue[Any]

    @property
    def running(self) -> bool: ...


class Result:
    """The answer to one request, a value or an exception: kazoo's ``IAsyncResult``.

    One is made and awaited for every request, so it has no lock of its own: each step is one that no other thread can
    come into. A waiter enters itself *before* it looks whether the answer is there, and the answer is stored *before*
    the waiters are looked for: whichever comes first, one of the two sees the other. So with callbacks.

    ``inward``: its callbacks are not a user's, and never block; they need no thread of their own.
    """

    __slots__ = ("_callbacks", "_error", "_handler", "_ready", "_waiters", "inward", "value")

    def __init__(self, handler: Completions) -> None:
        self.value: Any = None
        self.inward = False
        self._handler = handler
        self._error: BaseException | None = None
        self._ready = False
        self._waiters: deque[Any] = deque()
        self._callbacks: deque[Callable[[Any], object]] = deque()

    def ready(self) -> bool:
        return self._ready

    def successful(self) -> bool:
        return self._ready and self._error is None

    @property
    def exception(self) -> BaseException | None:
        return self._error

    def set(self, value: Any = None) -> None:
        """Store the value, and wake who waits for it."""
        self.value = value
        self._error = None
        self._finish()

    def set_exception(self, exception: BaseException) -> None:
        """Store the exception, and wake who waits for it."""
        self._error = exception
        self._finish()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The value, or the exception raised; kazoo's timeout exception if neither is there in ``timeout`` seconds."""
        if not (self._ready or (block and self.wait(timeout))):
            raise KazooTimeoutError
        if self._error is not None:
            raise self._error
        return self.value

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until there is an answer; tells whether there is one."""
        if not self._ready:
            turnstile = allocate_lock()
            turnstile.acquire()
            self._waiters.append(turnstile)
            if not self._ready:
                turnstile.acquire(timeout=-1 if timeout is None else max(timeout, 0))
        return self._ready

    def rawlink(self, callback: Callable[[Any], object]) -> None:
        """Call ``callback(self)`` when there is an answer, in the handler's thread for completions."""
        if callback not in self._callbacks:
            self._callbacks.append(callback)
        if self._ready:
            self._call_back()

    def unlink(self, callback: Callable[[Any], object]) -> None:
        """Do not call ``callback``, unless it is too late for that."""
        with suppress(ValueError):
            self._callbacks.remove(callback)

    def _finish(self) -> None:
        self._ready = True
        if self._callbacks:
            self._call_back()
        waiters = self._waiters
        while waiters:
            waiters.popleft().release()

    def _call_back(self) -> None:
        while True:
            try:
                callback = self._callbacks.popleft()
            except IndexError:  # all are called, or another thread is calling them
                return
            if self._handler.running and not self.inward:
                self._handler.completion_queue.put(partial(callback, self))
                continue
            try:
                callback(self)
            except Exception:
                _log.exception("a completion callback failed")
