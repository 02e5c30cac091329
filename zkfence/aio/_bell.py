"""Bell: wakes one task, from any thread."""

from __future__ import annotations

import asyncio


class Bell:
    """An event of one event loop that is cleared by being waited for. May ring too often: look at what it stands for.

    (asyncio's own events must be set on their loop; this one is rung on kazoo's threads.) Bells wake their tasks in the
    order in which they were rung.
    """

    __slots__ = ("_loop", "_rings", "_waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._rings = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> bool:
        """End the present wait, or else the next one. Never blocks. Tells whether the loop is there to hear it."""
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:  # the loop is closed
            return False
        return True

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until it rings, at most for ``timeout`` seconds; tells whether it did."""
        until = None if timeout is None else self._loop.time() + timeout
        while not self._rings:
            self._waiter = waiter = self._loop.create_future()
            timer = None if until is None else self._loop.call_at(until, _end, waiter)
            try:
                await waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
            if until is not None and self._loop.time() >= until:
                break
        if not self._rings:
            return False
        self._rings = False
        return True

    def _wake(self) -> None:
        self._rings = True
        if self._waiter is not None:
            _end(self._waiter)


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
