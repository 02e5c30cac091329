"""Bell: wakes one waiter."""

from __future__ import annotations

import threading
from contextlib import suppress

from kazoo.interfaces import IHandler


class Bell:
    """An event that is cleared by being waited for, made of one lock of the client's handler.

    (An event of the standard library is made of two objects more, and each wait of a third.)
    """

    __slots__ = ("_silent",)

    def __init__(self, handler: IHandler) -> None:
        self._silent = handler.lock_object()
        self._silent.acquire()

    def ring(self) -> None:
        """End the present wait, or else the next one. Never blocks."""
        with suppress(RuntimeError, ValueError):  # it has rung already
            self._silent.release()

    @property
    def rings(self) -> bool:
        return not self._silent.locked()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it rings, at most for ``timeout`` seconds; tells whether it did."""
        if timeout is None:
            return self._silent.acquire()
        return self._silent.acquire(True, min(timeout, threading.TIMEOUT_MAX))
