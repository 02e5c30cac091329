"""Steps of test_gevent, each in greenlets of one process: ``greenlets.py HOSTS NAMESPACE PATCHED``.

With PATCHED ``1``, the standard library is gevent's. Prints one line of JSON: what each step found, ``""`` if nothing.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and sys.argv[3] == "1":
    from gevent import monkey

    monkey.patch_all()

import json
import traceback
from collections.abc import Callable

import gevent
import gevent.event
from kazoo.client import KazooClient
from kazoo.handlers.gevent import SequentialGeventHandler

from zkfence import FencedLock, FencedReadLock, FencedSemaphore, Grant, LockLost, LockTimeout, WouldDeadlock, _clock
from zkfence._session import Session

TIMEOUT = 1.2


class Steps:
    def __init__(self, hosts: str, namespace: str) -> None:
        self._hosts = hosts
        self._namespace = namespace
        self._zk = self._client()
        self._other = self._client()

    def _client(self) -> KazooClient:
        client = KazooClient(self._hosts, timeout=TIMEOUT, handler=SequentialGeventHandler())
        client.start()
        return client

    def _lock(self, name: str, client: KazooClient | None = None) -> FencedLock:
        return FencedLock(client or self._zk, name, namespace=self._namespace)

    def tokens_rise_and_no_two_greenlets_hold_at_once(self) -> None:
        held: list[int] = []
        inside: list[object] = []

        def contend(client: KazooClient) -> None:
            lock = self._lock("contended", client)
            for _ in range(5):
                with lock.acquire(timeout=60) as grant:
                    inside.append(grant)
                    assert len(inside) == 1
                    held.append(grant.token)
                    gevent.sleep(0)
                    inside.remove(grant)

        gevent.joinall([gevent.spawn(contend, each) for each in (self._zk, self._other) * 4], raise_error=True)
        assert held == sorted(set(held))
        assert len(held) == 40

    def other_greenlets_run_while_one_waits(self) -> None:
        with self._lock("waited") as grant:
            waiting = gevent.spawn(lambda: self._lock("waited").acquire(timeout=20).release())
            gevent.sleep(0.1)
            assert not waiting.ready()
            grant.check()
        waiting.get(timeout=20)

    def a_timeout_is_met(self) -> None:
        with self._lock("timed"):
            began = _clock.now()
            waiting = gevent.spawn(lambda: self._lock("timed").acquire(timeout=0.2))
            waiting.join(timeout=10)
            assert isinstance(waiting.exception, LockTimeout)
            assert _clock.now() - began < 5
            assert gevent.spawn(lambda: self._lock("timed").try_acquire()).get(timeout=10) is None

    def a_greenlet_would_deadlock_and_another_one_would_not(self) -> None:
        lock = self._lock("own")
        with lock:
            try:
                lock.acquire(timeout=5)
            except WouldDeadlock:
                pass
            else:
                raise AssertionError("it waits for itself")
            other = gevent.spawn(lambda: lock.acquire(timeout=0.05))
            other.join()
            assert isinstance(other.exception, LockTimeout)

    def readers_and_permits_are_shared(self) -> None:
        readers = FencedReadLock(self._zk, "read", namespace=self._namespace)
        permits = FencedSemaphore(self._zk, "permits", permits=2, namespace=self._namespace)
        for lock in (readers, permits):
            grants = [gevent.spawn(lock.acquire, timeout=20).get() for _ in range(2)]
            for grant in grants:
                grant.release()

    def a_lost_grant_is_told_with_the_handlers_event(self) -> None:
        told: list[Grant] = []
        grant = self._lock("lost").acquire()
        assert isinstance(grant.lost, gevent.event.Event)

        def on_lost(grant: Grant) -> None:
            try:
                grant.check()
            except LockLost:
                grant.release()
            with self._lock("lost").acquire(timeout=20):
                told.append(grant)

        grant.on_lost(on_lost)
        self._other.delete(grant.path)
        assert grant.lost.wait(5)
        with gevent.Timeout(10):
            while not told:
                gevent.sleep(0.01)

    def the_heart_beats_in_a_greenlet(self) -> None:
        session = Session.of(self._zk)
        with self._lock("long") as grant:
            for _ in range(12):
                gevent.sleep(TIMEOUT / 6)
                grant.check()
                assert grant.remaining() > 0
            assert session._heartbeat._is_running
        with gevent.Timeout(5 * TIMEOUT):
            while session._heartbeat._is_running:
                gevent.sleep(0.02)

    def a_killed_greenlet_leaves_nothing(self) -> None:
        with self._lock("killed") as grant:
            waiting = gevent.spawn(self._lock("killed").acquire)
            with gevent.Timeout(10):
                while len(self._lock("killed").contenders()) < 2:
                    gevent.sleep(0.01)
            waiting.kill()
            with gevent.Timeout(10):
                while len(self._lock("killed").contenders()) > 1:
                    gevent.sleep(0.01)
            grant.check()

    def a_closed_client_loses_its_grants(self) -> None:
        client = self._client()
        grant = self._lock("closed", client).acquire()
        lost = grant.lost
        client.stop()
        client.close()
        assert lost.wait(5)
        self._lock("closed").acquire(timeout=10).release()

    def close(self) -> None:
        for client in (self._zk, self._other):
            client.stop()
            client.close()


STEPS = [name for name in vars(Steps) if not name.startswith("_") and name != "close"]


def main(hosts: str, namespace: str, patched: str) -> None:
    steps = Steps(hosts, namespace)
    found: dict[str, str] = {}
    for name in STEPS:
        step: Callable[[], None] = getattr(steps, name)
        try:
            with gevent.Timeout(60):
                step()
        except BaseException:
            found[name] = traceback.format_exc()
        else:
            found[name] = ""
    steps.close()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
