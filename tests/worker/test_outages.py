"""Outages: while ZooKeeper is away deadlines are kept, and afterwards everything goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import zkfence
from zkfence import FencedLock, LockTimeout
from zkfence.testing import LocalEnsemble

from .conftest import Background

Start = Callable[[Callable[[], Any]], Background]
Eventually = Callable[..., None]


@pytest.fixture
def ensemble() -> Iterator[LocalEnsemble]:
    """Servers of the test's own, to be killed."""
    with LocalEnsemble(nodes=1) as ensemble:
        yield ensemble


def contenders(client: zkfence.Client, namespace: str) -> list[str]:
    return client.get_children(f"{namespace}/locks/a/1")


def test_deadlines_are_kept_while_zookeeper_is_down_and_nothing_stays_behind(
    ensemble: LocalEnsemble, zkfence_namespace: str, eventually: Eventually
) -> None:
    """More attempts than kazoo's queue takes before it stalls."""
    with zkfence.connect(ensemble.hosts, session_timeout=30.0) as client:
        lock = FencedLock(client, "a", namespace=zkfence_namespace)
        lock.acquire().release()
        ensemble.nodes[0].kill()
        eventually(lambda: not client.connected, "the client has noticed")

        def attempt(_: int) -> float:
            started = time.monotonic()
            with pytest.raises(LockTimeout):
                lock.acquire(timeout=0.02)
            return time.monotonic() - started

        with ThreadPoolExecutor(8) as threads:
            late = max(threads.map(attempt, range(400)))
        assert late < 5.0
        ensemble.nodes[0].restart()
        ensemble.wait_for_quorum()
        with zkfence.connect(ensemble.hosts) as another:
            FencedLock(another, "a", namespace=zkfence_namespace).acquire(timeout=15).release()
            eventually(lambda: contenders(another, zkfence_namespace) == [], "nothing stays behind", within=15.0)
        lock.acquire(timeout=15).release()


def test_waiters_are_served_after_a_restart(
    ensemble: LocalEnsemble, zkfence_namespace: str, in_background: Start, eventually: Eventually
) -> None:
    with zkfence.connect(ensemble.hosts, session_timeout=30.0) as client:
        lock = FencedLock(client, "a", namespace=zkfence_namespace)
        tokens: list[zkfence.Token] = []

        def take_a_turn() -> None:
            with lock.acquire(timeout=60) as grant:
                tokens.append(grant.token)

        grant = lock.acquire()
        waiting = [in_background(take_a_turn) for _ in range(20)]
        eventually(lambda: len(contenders(client, zkfence_namespace)) == 21, "all stand in line")
        ensemble.nodes[0].kill()
        ensemble.nodes[0].restart()
        ensemble.wait_for_quorum()
        grant.release()
        for each in waiting:
            each.result(within=60)
        assert tokens == sorted(set(tokens))
        assert len(tokens) == 20
        assert contenders(client, zkfence_namespace) == []


def test_a_release_while_zookeeper_is_down_ends_and_the_node_goes_later(
    ensemble: LocalEnsemble, zkfence_namespace: str, eventually: Eventually
) -> None:
    with zkfence.connect(ensemble.hosts, session_timeout=3.0) as client:
        lock = FencedLock(client, "a", namespace=zkfence_namespace)
        grant = lock.acquire()
        ensemble.nodes[0].kill()
        eventually(lambda: not client.connected, "the client has noticed")
        grant.release()  # ends after a session timeout at the latest
        ensemble.nodes[0].restart()
        ensemble.wait_for_quorum()
        with zkfence.connect(ensemble.hosts) as another:
            FencedLock(another, "a", namespace=zkfence_namespace).acquire(timeout=20).release()
            eventually(lambda: contenders(another, zkfence_namespace) == [], "nothing stays behind")
