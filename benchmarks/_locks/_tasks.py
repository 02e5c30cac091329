"""zkfence.aio as a contender: a task each, all on one event loop and one session."""

from __future__ import annotations

import asyncio
import threading
import traceback
from typing import Final

import zkfence
from zkfence.aio import FencedLock

from ._crowd import Crowd
from ._row import Row
from ._zkfence import NAMESPACE

_START_TIMEOUT: Final = 60.0


class TaskCrowd(Crowd):
    def __init__(self, hosts: str, session_timeout: float, row: Row, lock_name: str) -> None:
        if not row.contended:
            raise ValueError("tasks are for contended rows: alone, they measure the event loop")
        self._zk = zkfence.connect(hosts, session_timeout=session_timeout)
        self._row = row
        self._lock_name = lock_name
        self._cycles = 0
        self._failure: str | None = None
        self._stopping = False
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._go = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        if not self._started.wait(_START_TIMEOUT):
            raise TimeoutError("the tasks did not start")

    def go(self) -> None:
        self._loop.call_soon_threadsafe(self._go.set)

    @property
    def cycles(self) -> int:
        return self._cycles

    @property
    def failure(self) -> str | None:
        return self._failure

    def stop(self) -> None:
        self._stopping = True
        self._zk.stop()
        self._zk.close()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._contend_all())
        except Exception:
            if not self._stopping:
                self._failure = traceback.format_exc()
        finally:
            self._started.set()

    async def _contend_all(self) -> None:
        lock = FencedLock(self._zk, self._lock_name, namespace=NAMESPACE)
        async with asyncio.TaskGroup() as tasks, lock:
            for _ in range(self._row.size):
                tasks.create_task(self._contend(lock))
            self._started.set()
            await self._go.wait()

    async def _contend(self, lock: FencedLock) -> None:
        while not self._stopping:
            async with lock:
                pass
            self._cycles += 1
