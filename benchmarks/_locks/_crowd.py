"""Crowd: those who acquire and release in one cell of the table, in the worker's process."""

from __future__ import annotations

import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from ._row import Row

_PATIENCE: Final = 1.0  # seconds for cycles that are under way; who waits in line is not waited for


class Crowd(ABC):
    """Acquires and releases, each of the row's size of them over and over, from `go` to `stop`."""

    @abstractmethod
    def start(self) -> None:
        """Everybody is ready. In a contended row the lock is held, and they are on their way into the line for it."""

    @abstractmethod
    def go(self) -> None: ...

    @property
    @abstractmethod
    def cycles(self) -> int:
        """How often one of them has acquired and released."""

    @property
    @abstractmethod
    def failure(self) -> str | None:
        """What went wrong before `stop`, which makes the cell void."""

    @abstractmethod
    def stop(self) -> None:
        """End the cycles that are under way, and then the session, whoever may still wait. The process has no other
        use after that."""


class LockClient(ABC):
    """A contender whose locks block a thread: one client, and the locks that are made with it."""

    @abstractmethod
    def lock(self, name: str) -> AbstractContextManager[object]:
        """What one thread enters and leaves over and over. Threads that give the same name exclude each other."""

    @abstractmethod
    def close(self) -> None:
        """End the session."""


class ThreadCrowd(Crowd):
    """A thread each."""

    def __init__(self, client: LockClient, row: Row, lock_name: str) -> None:
        self._client = client
        self._row = row
        self._lock_name = lock_name
        self._counts = [0] * row.size  # each thread counts for itself
        self._failure: str | None = None
        self._stopping = False
        self._go: Callable[[], object] = lambda: None
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        started = threading.Event()
        if self._row.contended:
            gate = self._client.lock(self._lock_name)
            gate.__enter__()
            self._go = lambda: gate.__exit__(None, None, None)
            started.set()
            names = [self._lock_name] * self._row.size
        else:
            self._go = started.set
            names = [f"{self._lock_name}-{index}" for index in range(self._row.size)]
        self._threads = [
            threading.Thread(target=self._cycle, args=(index, name, started), daemon=True)
            for index, name in enumerate(names)
        ]
        for thread in self._threads:
            thread.start()

    def go(self) -> None:
        self._go()

    @property
    def cycles(self) -> int:
        return sum(self._counts)

    @property
    def failure(self) -> str | None:
        return self._failure

    def stop(self) -> None:
        self._stopping = True
        deadline = time.monotonic() + _PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._client.close()

    def _cycle(self, index: int, lock_name: str, started: threading.Event) -> None:
        try:
            lock = self._client.lock(lock_name)
            started.wait()
            while not self._stopping:
                with lock:
                    pass
                self._counts[index] += 1
        except Exception:
            if not self._stopping:
                self._failure = traceback.format_exc()
