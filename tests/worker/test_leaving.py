"""Leaving: what cannot be removed now is removed later, in the background, and holds up nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import zkfence
from zkfence import FencedLock, FencedReadLock, LockTimeout, NotConnected, _clock, _grant, _session
from zkfence._threads import leave_later
from zkfence.testing import LocalEnsemble

from .conftest import Background, Nodes, break_connection
from .proxy import CREATE2, DELETE, Proxy, of

Start = Callable[[Callable[[], Any]], Background]
Eventually = Callable[..., None]
TIMEOUT = 3.0


@pytest.fixture
def proxy(zkfence_ensemble: LocalEnsemble) -> Iterator[Proxy]:
    with Proxy(zkfence_ensemble.nodes[0].address) as proxy:
        yield proxy
        proxy.heal()


@pytest.fixture
def lock(proxy: Proxy, zkfence_namespace: str) -> Iterator[FencedLock]:
    """Behind the proxy."""
    with zkfence.connect(proxy.address, session_timeout=TIMEOUT) as client:
        yield FencedLock(client, "a", namespace=zkfence_namespace)
        proxy.heal()


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_connection_that_breaks_at_the_release_leaves_nothing_and_the_next_acquire_is_quick(
    lock: FencedLock, proxy: Proxy, nodes: Nodes, is_applied: bool
) -> None:
    grant = lock.acquire()
    strike = (proxy.lose_reply if is_applied else proxy.lose_request)(of(DELETE))
    began = _clock.now()
    grant.release()
    assert strike.done.is_set()
    with lock.acquire(timeout=5) as again:
        assert _clock.now() - began < 2.0
        assert nodes.contenders("a") == [again.path]
        assert again.token > grant.token


def test_a_release_in_an_outage_ends_with_the_session_timeout_and_goes_on_behind_it(
    lock: FencedLock, proxy: Proxy, nodes: Nodes, eventually: Eventually
) -> None:
    grant = lock.acquire()
    proxy.refuse()
    began = _clock.now()
    grant.release()
    assert TIMEOUT * 0.9 < _clock.now() - began < TIMEOUT + 1
    proxy.heal()
    eventually(lambda: nodes.contenders("a") == [], "the node is gone", within=TIMEOUT)
    with lock.acquire(timeout=10) as again:
        assert again.token > grant.token


def test_a_waiter_that_gives_up_in_an_outage_is_not_held_up_and_leaves_later(
    lock: FencedLock, other: FencedLock, proxy: Proxy, nodes: Nodes, in_background: Start, eventually: Eventually
) -> None:
    with other as grant:

        def wait_in_vain() -> float:
            with pytest.raises(LockTimeout):
                lock.acquire(timeout=1.0)
            return _clock.now()

        waiting = in_background(wait_in_vain)
        began = _clock.now()
        eventually(lambda: len(nodes.contenders("a")) == 2, "it stands in line")
        proxy.go_deaf()
        assert waiting.result() - began < 1.5
        proxy.heal()
        eventually(lambda: nodes.contenders("a") == [grant.path], "its node goes", within=10.0)


def test_a_create_in_flight_when_the_time_is_up_leaves_later(
    lock: FencedLock, proxy: Proxy, nodes: Nodes, eventually: Eventually
) -> None:
    lock.acquire().release()
    held = proxy.hold_reply(of(CREATE2))
    with pytest.raises(LockTimeout):
        lock.acquire(timeout=0.2)
    assert held.done.is_set()
    assert len(nodes.contenders("a")) == 1, "nobody here knows of it yet"
    proxy.heal()
    eventually(lambda: nodes.contenders("a") == [], "it goes all the same", within=10.0)


def test_what_has_to_go_in_the_background_ends_with_the_session(
    lock: FencedLock, proxy: Proxy, nodes: Nodes, eventually: Eventually,
    end_session: Callable[[zkfence.Client], None],
) -> None:  # fmt: skip
    lock.acquire().release()
    session = lock._session
    held = proxy.hold_reply(of(CREATE2))
    with pytest.raises(LockTimeout):
        lock.acquire(timeout=0.2)
    assert held.done.is_set()
    proxy.refuse()
    eventually(lambda: nodes.contenders("a") == [], "the session is over", within=10.0)
    proxy.heal()
    with lock.acquire(timeout=15) as grant:
        eventually(lambda: not session._errands_running, "nothing is left to do")
        assert nodes.contenders("a") == [grant.path]


def test_many_leavings_hold_up_neither_a_loss_nor_an_acquisition(
    zk: zkfence.Client, other_zk: zkfence.Client, nodes: Nodes, zkfence_namespace: str, eventually: Eventually
) -> None:
    """150 nodes have to go when the connection is back, and one that is held has gone meanwhile."""
    lock = FencedLock(zk, "a", namespace=zkfence_namespace)
    readers = FencedReadLock(zk, "r", namespace=zkfence_namespace)
    grants = [readers.try_acquire() for _ in range(150)]
    grant = lock.acquire()
    break_connection(zk)
    eventually(lambda: not zk.connected, "the connection has gone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_grant, "leave_now", leave_later)
        for each in grants:
            assert each
            each.release()
    other_zk.delete(grant.path)
    assert grant.lost.wait(5)
    with lock.acquire(timeout=5) as again:
        assert again.token > grant.token
    eventually(lambda: nodes.contenders("r") == [], "all have gone", within=15.0)


def test_a_look_after_a_holder_comes_before_everything_that_waits_in_the_background(
    zk: zkfence.Client, lock: FencedLock, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    session = lock._session
    order: list[str] = []
    busy, go = threading.Event(), threading.Event()
    monkeypatch.setattr(_session, "verify", lambda session, holdings: order.append("look"))

    def take_long() -> None:
        busy.set()
        go.wait(10)

    grant = lock.acquire()
    session.run_errand(take_long)
    assert busy.wait(5)
    session.run_errand(lambda: order.append("leave"))
    zk.set(grant.path, b"changed")
    eventually(lambda: len(session._errands) == 2, "both wait")
    go.set()
    eventually(lambda: len(order) == 2, "both are done")
    assert order == ["look", "leave"]
    grant.release()


def test_an_errand_that_fails_does_not_stop_the_others(lock: FencedLock, caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()
    lock._session.run_errand(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    lock._session.run_errand(done.set)
    assert done.wait(2)
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("use", ["acquire", "try_acquire", "contenders", "holder"])
def test_a_client_that_is_not_started_is_told_of_at_once(zkfence_namespace: str, use: str) -> None:
    lock = FencedLock(zkfence.Client("127.0.0.1:9"), "a", namespace=zkfence_namespace)
    began = _clock.now()
    with pytest.raises(NotConnected, match="start"):
        getattr(lock, use)(**({"timeout": 2.0} if use == "acquire" else {}))
    assert _clock.now() - began < 2


def test_a_release_on_a_closed_client_ends_at_once(
    connect: Callable[..., zkfence.Client], zkfence_namespace: str, nodes: Nodes, eventually: Eventually
) -> None:
    client = connect()
    grant = FencedLock(client, "a", namespace=zkfence_namespace).acquire()
    client.stop()
    began = _clock.now()
    grant.release()
    assert _clock.now() - began < 2
    assert grant.lost.is_set()
    eventually(lambda: nodes.contenders("a") == [], "the session took its node")
