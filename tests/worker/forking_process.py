"""A worker process of test_fork: forks while it holds a lock and its threads are busy. Prints what went wrong."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import zkfence
from zkfence import FencedLock, ForkedError, Grant, _clock
from zkfence._session import Session


def refuses(use: Callable[[], object]) -> bool:
    try:
        use()
    except ForkedError:
        return True
    return False


def look_in_child(grant: Grant, lock: FencedLock, hosts: str, namespace: str) -> None:
    """Whatever the parent's threads had locked at the fork."""
    assert refuses(grant.check)
    assert refuses(lambda: grant.stamp("r"))
    assert refuses(lambda: lock.acquire(timeout=5))
    assert refuses(lambda: lock.contenders())
    assert grant.remaining() == 0
    assert grant.lost.is_set()
    grant.on_lost(lambda grant: print("on_lost was called in the child", flush=True))
    repr(grant)
    grant.release()
    with zkfence.connect(hosts, session_timeout=2.0) as own, contextlib.suppress(zkfence.LockTimeout):
        FencedLock(own, "a", namespace=namespace).acquire(timeout=0.2)
        raise AssertionError("the parent has the lock")


def main(hosts: str, namespace: str) -> None:
    client = zkfence.connect(hosts, session_timeout=1.2)
    lock = FencedLock(client, "a", namespace=namespace)
    grant = lock.acquire()
    session = Session.of(client)
    for locked in (Session._registry, session.changing, session._lock):
        held, go = threading.Event(), threading.Event()

        def hold(locked: threading.Lock = locked, held: threading.Event = held, go: threading.Event = go) -> None:
            with locked:
                held.set()
                go.wait(20)

        threading.Thread(target=hold).start()
        held.wait()
        child = os.fork()
        if child == 0:
            look_in_child(grant, lock, hosts, namespace)
            sys.exit(0)  # the way of a program that ends, with all that is registered for it
        go.set()
        deadline = time.monotonic() + 20
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time.monotonic() > deadline:
                print(f"the child hangs: {locked}", flush=True)
                os.kill(child, signal.SIGKILL)
                deadline += 60
            time.sleep(0.02)
        assert ended[1] == 0, "the child has failed"
    until = _clock.now() + 1.5
    while _clock.now() < until:
        grant.check()
        time.sleep(0.02)
    grant.release()
    assert not lock.contenders()
    client.stop()
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
