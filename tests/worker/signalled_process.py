"""A worker process of test_signals: holds or awaits the lock ``a`` in one of several ways, and is then sent signals.

Prints ``holding`` or ``waiting`` when it is that far, and what else a test wants to know.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

from kazoo.client import KazooClient

import zkfence


def say(text: str) -> None:
    """In one system call: a handler may say something in the middle of what it has interrupted."""
    os.write(sys.stdout.fileno(), f"{text}\n".encode())


def wait_for(event: Any) -> None:
    """In short steps: a signal that comes just before a step begins to block is heard when it ends."""
    while not event.wait(0.2):
        pass


def wait_for_ever() -> None:
    wait_for(threading.Event())


class Worker:
    def __init__(self, hosts: str, namespace: str, session_timeout: float) -> None:
        self._hosts = hosts
        self._namespace = namespace
        self._session_timeout = session_timeout

    def connect(self) -> zkfence.Client:
        return zkfence.connect(self._hosts, session_timeout=self._session_timeout)

    def connect_stock(self) -> KazooClient:
        zk = KazooClient(self._hosts, timeout=self._session_timeout)
        zk.start()
        return zk

    def lock(self, client: KazooClient, name: str = "a") -> zkfence.FencedLock:
        return zkfence.FencedLock(client, name, namespace=self._namespace)

    def bare(self) -> None:
        """The control: nothing hears the signal."""
        with self.connect() as zk, self.lock(zk):
            say("holding")
            wait_for_ever()

    def holds(self, *signals: signal.Signals) -> None:
        with zkfence.exit_on_signals(*signals), self.connect() as zk, self.lock(zk):
            say("holding")
            wait_for_ever()

    def holds_and_heeds_others(self) -> None:
        self.holds(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def ignores_hangup(self) -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.holds_and_heeds_others()

    def never_closes(self) -> None:
        """A script that leaves everything to the end of the process."""
        zk = self.connect_stock()
        with zkfence.exit_on_signals():
            grant = self.lock(zk).acquire()
            say("holding")
            wait_for_ever()
        del grant

    def waits(self) -> None:
        with zkfence.exit_on_signals(), self.connect() as zk:
            say("waiting")
            self.lock(zk).acquire()

    def acquires_and_releases(self) -> None:
        with zkfence.exit_on_signals(), self.connect() as zk:
            lock = self.lock(zk)
            lock.acquire().release()
            say("holding")
            while True:
                with lock:
                    pass

    def finishes_its_step(self) -> None:
        with zkfence.exit_on_signals(interrupt=False) as stopping, self.connect() as zk:
            with self.lock(zk):
                say("holding")
                wait_for(stopping)
                say("finished")
            say("released")

    def overruns(self) -> None:
        with zkfence.exit_on_signals(grace=0.3, interrupt=False), self.connect() as zk, self.lock(zk):
            say("holding")
            try:
                wait_for_ever()
            finally:
                say("unwound")

    def pool(self) -> None:
        with (
            zkfence.exit_on_signals() as stopping,
            self.connect() as zk,
            ThreadPoolExecutor(4) as pool,
        ):

            def work(name: str) -> None:
                with self.lock(zk, name):
                    all_hold.wait()
                    stopping.wait()

            all_hold = threading.Barrier(5)
            for name in "abcd":
                pool.submit(work, name)
            all_hold.wait()
            say("holding")
            wait_for_ever()

    def stubborn_thread(self, grace: float = 0.3) -> None:
        """A thread that heeds nothing, and is no daemon."""
        zk = self.connect()

        def work() -> None:
            with self.lock(zk) as grant:
                say("holding")
                grant.lost.wait()
                say("lost")
                wait_for_ever()

        with zkfence.exit_on_signals(grace=grace):
            threading.Thread(target=work).start()
            wait_for_ever()

    def stubborn_thread_with_much_grace(self) -> None:
        self.stubborn_thread(grace=math.inf)

    def hosted(self) -> None:
        """A host with a handler of its own, which ends when it likes."""
        told = threading.Event()

        def handler(signum: int, frame: FrameType | None) -> None:
            say("host was told")
            threading.Thread(target=told.set).start()

        signal.signal(signal.SIGTERM, handler)
        with self.connect() as zk, self.lock(zk):
            with zkfence.exit_on_signals() as stopping:
                say("holding")
                wait_for(stopping)
                wait_for(told)
            assert signal.getsignal(signal.SIGTERM) is handler

    def host_that_lingers(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: say("host was told"))
        grant = self.lock(self.connect()).acquire()
        with zkfence.exit_on_signals(grace=0.3):
            say("holding")
            wait_for(grant.lost)
        time.sleep(1.5)  # longer than a process without a host would be left
        say("host goes on")

    def swallowed(self) -> None:
        """The signal comes while kazoo wakes its connection."""

        class Socket:
            def __init__(self, socket: Any) -> None:
                self._socket = socket
                self._sent = False

            def send(self, data: bytes) -> None:
                self._socket.send(data)
                if not self._sent:
                    self._sent = True
                    signal.raise_signal(signal.SIGTERM)

            def __getattr__(self, name: str) -> Any:
                return getattr(self._socket, name)

        zk = self.connect_stock()
        with zkfence.exit_on_signals(), self.lock(zk):
            say("holding")
            zk._connection._write_sock = Socket(zk._connection._write_sock)
            zk.exists("/")
            wait_for_ever()

    def forks(self) -> None:
        """The child has the handlers of its parent, and none of its locks."""
        with zkfence.exit_on_signals(), self.connect() as zk, self.lock(zk):
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                os.write(writer, b"!")  # Python drops what comes before the fork has returned
                wait_for_ever()
            os.read(reader, 1)
            os.kill(child, signal.SIGTERM)
            _, status = os.waitpid(child, 0)
            say(f"child ended by {os.WTERMSIG(status) if os.WIFSIGNALED(status) else status}")
            say("holding")
            wait_for_ever()

    def task(self, **options: Any) -> None:
        async def main() -> None:
            async with zkfence.exit_on_signals(**options) as stopping:
                with self.connect() as zk:
                    grant = await asyncio.to_thread(self.lock(zk).acquire)
                    try:
                        say("holding")
                        await (asyncio.Event().wait() if options.get("interrupt", True) else stopping.wait())
                    finally:
                        await asyncio.to_thread(grant.release)
                        say("released")

        asyncio.run(main())

    def patient_task(self) -> None:
        self.task(interrupt=False)

    def task_that_overruns(self) -> None:
        async def main() -> None:
            async with zkfence.exit_on_signals(grace=0.3, interrupt=False):
                with self.connect() as zk:
                    grant = await asyncio.to_thread(self.lock(zk).acquire)
                    say("holding")
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.Event().wait()
                    say("lost" if grant.lost.is_set() else "held")

        asyncio.run(main())


def main(way: str, hosts: str, namespace: str, session_timeout: str) -> None:
    work: Callable[[], None] = getattr(Worker(hosts, namespace, float(session_timeout)), way)
    work()


if __name__ == "__main__":
    main(*sys.argv[1:])
