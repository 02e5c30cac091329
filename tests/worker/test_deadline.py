"""The deadline: a grant says that it is lost before ZooKeeper can give the lock to anybody else, heard of or not."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.serialization import CheckVersion, Transaction
from kazoo.security import make_acl

import zkfence
from zkfence import (
    FencedLock,
    FencedReadLock,
    FencedSemaphore,
    Grant,
    LockLost,
    LockTimeout,
    NotConnected,
    _clock,
    _session_timeout,
)
from zkfence._core._operations import Effect
from zkfence._lease import Lease
from zkfence._session import Session
from zkfence.testing import LocalEnsemble, Zombie, holding
from zkfence_receivers import MemoryReceiver

from .conftest import Background, Faults, Nodes, break_connection
from .proxy import CREATE2, MULTI, Proxy, of

Start = Callable[[Callable[[], Any]], Background]
Eventually = Callable[..., None]
MOST = 3.0  # seconds: what `server` grants at most


@pytest.fixture(scope="module")
def server() -> Iterator[LocalEnsemble]:
    """A server of the tests' own, to be stopped in its tracks. It grants no long sessions."""
    with LocalEnsemble(durable=False, max_session_timeout=MOST) as ensemble:
        yield ensemble


@pytest.fixture(scope="module")
def ensemble3() -> Iterator[LocalEnsemble]:
    """Three servers of the tests' own, to be killed and restarted. One without a quorum answers reads, for which it
    needs sessions that are its own until they make an ephemeral node."""
    local = {"localSessionsEnabled": "true", "localSessionsUpgradingEnabled": "true"}
    with LocalEnsemble(3, durable=False, config=local, jvm_options=["-Dreadonlymode.enabled=true"]) as ensemble:
        yield ensemble


@contextmanager
def paused(server: LocalEnsemble) -> Iterator[None]:
    server.nodes[0].pause()
    try:
        yield
    finally:
        server.nodes[0].resume()


class Beats:
    """Watches the requests that a client sends."""

    def __init__(self, client: KazooClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent_at: list[float] = []  # heartbeats
        self.last_request = 0.0
        call = client._call

        def counting(request: object, reply: object) -> bool | None:
            self.last_request = _clock.now()
            if isinstance(request, Transaction) and [type(each) for each in request.operations] == [CheckVersion]:
                self.sent_at.append(_clock.now())
            return call(request, reply)

        monkeypatch.setattr(client, "_call", counting)


@pytest.fixture
def beats(zk: KazooClient, monkeypatch: pytest.MonkeyPatch) -> Beats:
    return Beats(zk, monkeypatch)


def jump(session: Session, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the process stand still for so long, as far as it can tell."""
    now = session.now
    monkeypatch.setattr(session, "now", lambda: now() + seconds)


# --- the servers are away -------------------------------------------------------------------------------------------


def test_frozen_servers_are_a_lost_grant_by_the_deadline_and_all_goes_on_when_they_come_back(
    server: LocalEnsemble, zkfence_namespace: str, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    timeout = 1.2
    with zkfence.connect(server.hosts, session_timeout=timeout) as client:
        beats = Beats(client, monkeypatch)
        lock = FencedLock(client, "a", namespace=zkfence_namespace)
        store = MemoryReceiver()
        grant = lock.acquire()
        handle = store.claim("r", grant)
        told = threading.Event()
        grant.on_lost(lambda grant: told.set())
        eventually(lambda: len(beats.sent_at) >= 2, "the heart beats")
        with paused(server):
            thawed_at = _clock.now() + 5 * timeout
            assert grant.lost.wait(2 * timeout)
            assert _clock.now() < beats.last_request + timeout, "the servers could have ended the session by now"
            assert told.wait(1)
            for use in (grant.check, lambda: grant.stamp("r"), lambda: handle.write(b"1"), handle.read):
                with pytest.raises(LockLost, match="in time"):
                    use()
            assert grant.remaining() == 0
            threading.Event().wait(thawed_at - _clock.now())
        with lock.acquire(timeout=20) as again:
            assert again.token > grant.token
            grant.release()
            again.check()
            assert client.get_children(again.path.rpartition("/")[0]) == [again.path.rpartition("/")[2]]


def test_what_remains_shrinks_in_silence_and_grows_with_a_heartbeat(
    server: LocalEnsemble, zkfence_namespace: str, eventually: Eventually
) -> None:
    with zkfence.connect(server.hosts, session_timeout=MOST) as client:
        grant = FencedLock(client, "a", namespace=zkfence_namespace).acquire()
        eventually(lambda: grant.remaining() > MOST / 2, "the heart beats")
        with paused(server):
            eventually(lambda: grant.remaining() < MOST / 2, "nothing is heard")
            first = grant.remaining()
            eventually(lambda: grant.remaining() < first, "it shrinks")
        eventually(lambda: grant.remaining() > MOST / 2, "it grows again")
        grant.check()
        grant.release()
        assert grant.remaining() == 0


def test_a_release_while_zookeeper_stands_still_ends_within_a_session_timeout_and_the_node_goes_later(
    server: LocalEnsemble, zkfence_namespace: str, eventually: Eventually
) -> None:
    """However it ends: by the deletion, which goes on in the background, or with the session."""
    with zkfence.connect(server.hosts, session_timeout=MOST) as client:
        lock = FencedLock(client, "a", namespace=zkfence_namespace)
        grant = lock.acquire()
        counter = grant.path.rpartition("/")[0]
        with paused(server):
            began = _clock.now()
            grant.release()
            assert _clock.now() - began < MOST + 0.5
        eventually(lambda: client.connected, "the client is back", within=10.0)
        began = _clock.now()
        lock.acquire(timeout=10).release()
        eventually(lambda: client.get_children(counter) == [], "the node is gone")
        assert _clock.now() - began < 2.0


def test_the_session_of_a_grant_whose_leader_is_killed_goes_on(
    ensemble3: LocalEnsemble, zkfence_namespace: str, eventually: Eventually
) -> None:
    with zkfence.connect(ensemble3.hosts, session_timeout=10.0) as client:
        with FencedLock(client, "a", namespace=zkfence_namespace).acquire() as grant:
            eventually(lambda: grant.remaining() > 7.5, "the heart beats")
            leader = ensemble3.leader()
            leader.kill()
            ensemble3.wait_for_quorum()
            eventually(lambda: grant.remaining() > 7.5, "it recovers", within=10.0)
            assert not grant.lost.is_set()
            grant.check()
            assert client.get_children(grant.path.rpartition("/")[0]) == [grant.path.rpartition("/")[2]]
        leader.restart()
        leader.wait_until_serving()


def test_a_read_only_connection_grants_nothing(
    ensemble3: LocalEnsemble, zkfence_namespace: str, eventually: Eventually
) -> None:
    """A server without a quorum lets in new sessions that only read, and no older ones."""
    *killed, last = ensemble3.nodes
    with zkfence.connect(ensemble3.hosts, session_timeout=2.0, read_only=True) as holder:
        held = FencedLock(holder, "held", namespace=zkfence_namespace).acquire()
        for node in killed:
            node.kill()
        assert held.lost.wait(5)
        with zkfence.connect(ensemble3.hosts, session_timeout=2.0, read_only=True) as client:
            assert client.client_state == "CONNECTED_RO"
            client.get_children("/")
            lock = FencedLock(client, "a", namespace=zkfence_namespace)
            with pytest.raises(LockTimeout):
                lock.acquire(timeout=0.3)
            with pytest.raises(NotConnected):
                lock.try_acquire()
            for node in killed:
                node.restart()
            for node in (*killed, last):
                node.wait_until_serving()
            with lock.acquire(timeout=30) as grant:
                assert client.get_children(grant.path.rpartition("/")[0]) == [grant.path.rpartition("/")[2]]
            with pytest.raises(LockLost):
                held.check()
            held.release()
            assert client.get_children(held.path.rpartition("/")[0]) == []


# --- the process stands still ---------------------------------------------------------------------------------------


def test_the_first_use_of_a_grant_after_a_pause_beyond_the_session_is_refused(
    server: LocalEnsemble, zkfence_namespace: str
) -> None:
    program = str(Path(__file__).with_name("believing_process.py"))
    arguments = [sys.executable, program, server.hosts, zkfence_namespace, "1.0"]
    with (
        subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as worker,
        server.client(session_timeout=MOST) as watcher,
    ):
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "holding\n"
            with Zombie(worker) as zombie:
                zombie.pause_past_session(watcher, holding("c", namespace=zkfence_namespace))
            assert json.loads(worker.stdout.readline()) == {"check": True, "stamp": True, "write": True}
        finally:
            worker.kill()


def test_no_grant_comes_with_a_deadline_that_has_passed(
    connect: Callable[..., zkfence.Client], zkfence_namespace: str, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process stands still before any of its steps, for longer than the session lasts."""
    client = connect(session_timeout=2.0)
    session = Session.of(client)
    number = 0
    while True:
        faults.effects.clear()

        def stand_still(effect: Effect, number: int = number) -> None:
            if len(faults.effects) == number + 1:
                jump(session, monkeypatch, 4.0)

        faults.before = stand_still
        with FencedLock(client, f"{number}", namespace=zkfence_namespace).acquire(timeout=60) as grant:
            assert grant.remaining() > 0.2
            grant.check()
            assert len(faults.effects) < 50, "it does not spin until the session is proved again"
        if len(faults.effects) <= number:
            break
        number += 1
    assert number > 3


def test_a_process_that_stands_still_behind_its_last_look_gets_a_lost_grant(
    zk: zkfence.Client, lock: FencedLock, nodes: Nodes, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    session, hold = lock._session, lock._session.hold

    def hold_late(*arguments: Any) -> None:
        jump(session, monkeypatch, 20.0)
        hold(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(session, "hold", hold_late)
        grant = lock.acquire()
    assert grant.lost.is_set()
    with pytest.raises(LockLost):
        grant.check()
    grant.release()
    eventually(lambda: nodes.contenders("a") == [], "it leaves nothing behind")


def test_the_release_of_a_grant_past_its_deadline_deletes_its_own_node_and_no_other(
    lock: FencedLock, other: FencedLock, zk: zkfence.Client, nodes: Nodes, monkeypatch: pytest.MonkeyPatch,
    in_background: Start, eventually: Eventually,
) -> None:  # fmt: skip
    """The session has lived all the time: only the answers were late."""
    grant = lock.acquire()
    waiting = in_background(lambda: other.acquire(timeout=20))
    eventually(lambda: len(nodes.contenders("a")) == 2, "the other one waits")
    with monkeypatch.context() as patch:
        jump(lock._session, patch, 60.0)
        with pytest.raises(LockLost, match="in time"):
            grant.check()
    with pytest.raises(LockLost):
        grant.check()
    assert grant.lost.is_set()
    assert grant.path in nodes.contenders("a")
    grant.release()
    with waiting.result() as next_grant:
        assert nodes.contenders("a") == [next_grant.path]


@pytest.mark.parametrize("reentrant", [False, True])
def test_whoever_has_lost_a_grant_at_its_deadline_does_not_wait_for_itself(
    zk: zkfence.Client, zkfence_namespace: str, nodes: Nodes, monkeypatch: pytest.MonkeyPatch, reentrant: bool
) -> None:
    """The session has lived all the time, and the old node with it: nobody has released the grant."""
    lock = FencedLock(zk, "a", namespace=zkfence_namespace, reentrant=reentrant)
    old = lock.acquire()
    jump(lock._session, monkeypatch, 60.0)
    with lock.acquire(timeout=5) as new:
        assert new.token > old.token
        assert new.remaining() > 0
        assert old.lost.is_set()
        assert nodes.contenders("a") == [new.path]
        old.release()
        new.check()
    assert nodes.contenders("a") == []
    assert not lock._session._owned


def test_a_grant_past_its_deadline_deletes_no_node_that_has_taken_its_path(
    lock: FencedLock, other: FencedLock, zk: zkfence.Client, nodes: Nodes, monkeypatch: pytest.MonkeyPatch,
    zkfence_namespace: str,
) -> None:  # fmt: skip
    """It is not told any more of what happens to its node, so it has to look."""
    old = lock.acquire()
    with monkeypatch.context() as patch:
        jump(lock._session, patch, 60.0)
        with pytest.raises(LockLost):
            old.check()
    zk.delete(zkfence_namespace, recursive=True)
    with other.acquire(timeout=10) as new:
        assert new.path == old.path
        old.release()
        assert nodes.contenders("a") == [new.path]


def test_the_wall_clock_does_not_matter(lock: FencedLock, monkeypatch: pytest.MonkeyPatch) -> None:
    with lock.acquire() as grant:
        before = grant.remaining()
        monkeypatch.setattr(time, "time", lambda: 4e9)
        assert abs(grant.remaining() - before) < 5
        grant.check()


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this platform has no clock that counts suspend")
def test_the_clock_counts_suspend() -> None:
    assert abs(_clock.now() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 1


# --- the heartbeat --------------------------------------------------------------------------------------------------


def test_a_session_has_one_heartbeat_however_much_it_holds(
    connect: Callable[..., zkfence.Client], zkfence_namespace: str, monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
) -> None:  # fmt: skip
    client = connect(session_timeout=1.2)
    beats = Beats(client, monkeypatch)
    grants: list[Grant] = []
    for number in range(10):
        grants.append(FencedLock(client, f"x{number}", namespace=zkfence_namespace).acquire())
        grants.append(FencedReadLock(client, f"r{number}", namespace=zkfence_namespace).acquire())
    grants.append(FencedSemaphore(client, "s", permits=2, namespace=zkfence_namespace).acquire())
    began = _clock.now()
    already = len(beats.sent_at)
    eventually(lambda: len(beats.sent_at) >= already + 6, "the heart beats")
    assert _clock.now() - began > 6 * 1.2 / 6 * 0.7, "of one heart"
    for grant in grants:
        grant.check()
        grant.release()


def test_the_heart_beats_while_somebody_waits(
    connect: Callable[..., zkfence.Client], zkfence_namespace: str, monkeypatch: pytest.MonkeyPatch, other: FencedLock,
    in_background: Start, eventually: Eventually,
) -> None:  # fmt: skip
    """So that the grant need not be proved by a write of its own."""
    client = connect(session_timeout=1.2)
    beats = Beats(client, monkeypatch)
    grant = other.acquire()
    waiting = in_background(lambda: FencedLock(client, "a", namespace=zkfence_namespace).acquire(timeout=20))
    eventually(lambda: len(beats.sent_at) >= 4, "the heart beats")
    grant.release()
    waiting.result().release()


def test_nothing_is_sent_when_nobody_holds_or_waits_and_the_thread_ends_and_starts_again(
    connect: Callable[..., zkfence.Client], zkfence_namespace: str, monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
) -> None:  # fmt: skip
    threads = threading.active_count()
    client = connect(session_timeout=1.0)
    beats = Beats(client, monkeypatch)
    lock = FencedLock(client, "a", namespace=zkfence_namespace)
    for _ in range(2):
        threads = threading.active_count()
        with lock.acquire() as grant:
            sent = len(beats.sent_at)
            assert threading.active_count() == threads + 1
            eventually(lambda: len(beats.sent_at) >= sent + 3, "the heart beats")  # noqa: B023
            grant.check()
        released_at = beats.last_request
        eventually(lambda: threading.active_count() <= threads, "the thread has ended")  # noqa: B023
        assert beats.last_request == released_at
    assert grant.token < lock.acquire().token


def test_a_rested_heart_beats_again_at_once(
    connect: Callable[..., zkfence.Client], zkfence_namespace: str, monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
) -> None:  # fmt: skip
    client = connect(session_timeout=10.0)
    beats = Beats(client, monkeypatch)
    lock = FencedLock(client, "a", namespace=zkfence_namespace)
    lock.acquire().release()
    heart = lock._session._heartbeat
    eventually(lambda: heart._is_resting, "it rests")
    jump(lock._session, monkeypatch, 8.0)  # but kazoo has said something all the time
    sent = len(beats.sent_at)
    with lock.acquire() as grant:
        assert 3.0 < grant.remaining() < 5.0, "on trust"
        assert len(beats.sent_at) == sent, "its own writes are a proof for now"
        eventually(lambda: len(beats.sent_at) > sent, "it beats", within=1.6)
        eventually(lambda: grant.remaining() > 7.0, "and the first proof is not alone any more", within=1.0)


def test_a_new_connection_is_proved_at_once(
    connect: Callable[..., zkfence.Client], zkfence_namespace: str, monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
) -> None:  # fmt: skip
    client = connect(session_timeout=60.0)
    beats = Beats(client, monkeypatch)
    with FencedLock(client, "a", namespace=zkfence_namespace).acquire() as grant:
        jump(Session.of(client), monkeypatch, 11.0)
        break_connection(client)
        eventually(lambda: len(beats.sent_at) >= 1, "the heart beats, which it would in ten seconds otherwise")
        eventually(lambda: grant.remaining() > 55, "and the session is known to live")


def test_a_session_is_sure_from_its_beginning(connect: Callable[..., zkfence.Client], zkfence_namespace: str) -> None:
    lock = FencedLock(connect(session_timeout=10.0), "a", namespace=zkfence_namespace)
    with lock.acquire() as grant:
        assert grant.remaining() > 7.0, "nothing is taken on trust"


def test_a_proof_counts_from_its_sending_and_not_from_its_answer(
    zkfence_ensemble: LocalEnsemble, zkfence_namespace: str, monkeypatch: pytest.MonkeyPatch, in_background: Start
) -> None:
    reports: list[tuple[float, float]] = []

    def proved(lease: Lease, sent_at: float, answered_at: float, timeout: float) -> None:
        reports.append((sent_at, answered_at))
        real(lease, sent_at, answered_at, timeout)

    real = Lease.proved
    monkeypatch.setattr(Lease, "proved", proved)
    with (
        Proxy(zkfence_ensemble.nodes[0].address) as proxy,
        zkfence.connect(proxy.address, session_timeout=10.0) as client,
    ):
        lock = FencedLock(client, "a", namespace=zkfence_namespace)
        lock.acquire().release()
        held = proxy.hold_reply(of(CREATE2))
        began = _clock.now()
        acquiring = in_background(lambda: lock.acquire(timeout=20))
        assert held.done.wait(5)
        answered_from = _clock.now() + 0.3
        threading.Event().wait(0.3)
        reports.clear()
        proxy.heal()
        acquiring.result().release()
    sent_at, answered_at = reports[0]
    assert began <= sent_at < answered_from - 0.3
    assert answered_at >= answered_from


def test_many_locks_in_turn_need_no_heartbeat(
    zk: zkfence.Client, zkfence_namespace: str, beats: Beats, lock: FencedLock
) -> None:
    """Their own writes prove the session."""
    until = _clock.now() + 2.5
    while _clock.now() < until:
        lock.acquire().release()
    assert len(beats.sent_at) <= 1


def test_a_lost_reply_to_a_heartbeat_does_not_lose_the_lock(
    zkfence_ensemble: LocalEnsemble, zkfence_namespace: str, eventually: Eventually
) -> None:
    with (
        Proxy(zkfence_ensemble.nodes[0].address) as proxy,
        zkfence.connect(proxy.address, session_timeout=3.0) as client,
        FencedLock(client, "a", namespace=zkfence_namespace).acquire() as grant,
    ):
        for _ in range(2):
            lost = proxy.lose_reply(of(MULTI))
            assert lost.done.wait(5)
            beats = proxy.requests[MULTI]
            eventually(lambda: proxy.requests[MULTI] > beats, "the heart beats on")  # noqa: B023
            eventually(lambda: grant.remaining() > 1.4, "and is heard")
            grant.check()
        assert not grant.lost.is_set()


def test_a_heartbeat_that_is_not_answered_is_sent_once(
    zkfence_ensemble: LocalEnsemble, zkfence_namespace: str, eventually: Eventually
) -> None:
    """A half-open connection: kazoo finds out by itself."""
    with (
        Proxy(zkfence_ensemble.nodes[0].address) as proxy,
        zkfence.connect(proxy.address, session_timeout=1.5) as client,
    ):
        grant = FencedLock(client, "a", namespace=zkfence_namespace).acquire()
        held = proxy.hold_reply(of(MULTI))
        assert held.done.wait(5)
        beats = proxy.requests[MULTI]
        assert grant.lost.wait(5)
        assert proxy.requests[MULTI] == beats
        proxy.heal()
        grant.release()
        FencedLock(client, "a", namespace=zkfence_namespace).acquire(timeout=10).release()


def test_a_heartbeat_that_zookeeper_refuses_proves_the_session_all_the_same(
    connect: Callable[..., zkfence.Client], zk: zkfence.Client, zkfence_namespace: str, monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
) -> None:  # fmt: skip
    """The worker may not even look at the root."""
    zk.create(zkfence_namespace)
    admin = connect(zkfence_namespace)
    FencedLock(admin, "a").acquire().release()
    zk.set_acls(zkfence_namespace, [make_acl("world", "anyone", create=True, delete=True, admin=True)])
    worker = connect(zkfence_namespace, session_timeout=1.0)
    beats = Beats(worker, monkeypatch)
    with FencedLock(worker, "a").acquire() as grant:
        eventually(lambda: len(beats.sent_at) >= 10, "the heart beats")
        grant.check()
    zk.set_acls(zkfence_namespace, [make_acl("world", "anyone", all=True)])


def test_a_client_that_is_closed_can_be_collected_and_its_heartbeat_ends(
    zkfence_ensemble: LocalEnsemble, zkfence_namespace: str, eventually: Eventually
) -> None:
    threads = threading.active_count()
    client = zkfence.connect(zkfence_ensemble.hosts, session_timeout=60.0)
    lock = FencedLock(client, "a", namespace=zkfence_namespace)
    lock.acquire()
    session = weakref.ref(lock._session)
    client.stop()
    client.close()
    eventually(lambda: threading.active_count() <= threads, "no thread is left")
    del client, lock
    gc.collect()
    assert session() is None


def test_a_worker_that_holds_and_waits_can_end(zkfence_ensemble: LocalEnsemble, zkfence_namespace: str) -> None:
    """Without a stop: its locks go with the session."""
    program = f"""
import threading, zkfence
client = zkfence.connect({zkfence_ensemble.hosts!r}, session_timeout=0.5)
lock = zkfence.FencedLock(client, "a", namespace={zkfence_namespace!r})
grant = lock.acquire()
threading.Thread(target=lock.acquire, daemon=True).start()
while len(lock.contenders()) < 2: pass
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=20)


# --- which timeout counts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("maker", ["kazoo", "connect"])
def test_the_timeout_that_is_granted_counts(
    server: LocalEnsemble, zkfence_namespace: str, maker: str, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """Asked for ten minutes, the server grants three seconds."""
    made = server.client if maker == "kazoo" else partial(zkfence.connect, server.hosts)
    with made(session_timeout=600.0) as client:
        beats = Beats(client, monkeypatch)
        grant = FencedLock(client, "a", namespace=zkfence_namespace).acquire()
        assert grant.deadline_is_verified
        assert grant.remaining() <= MOST
        eventually(lambda: len(beats.sent_at) >= 3, "the heart beats as that wants it", within=MOST)
        with paused(server):
            assert grant.lost.wait(MOST)
            assert _clock.now() < beats.last_request + MOST


def test_a_deadline_that_counts_with_a_wish_says_that_it_is_not_verified(
    server: LocalEnsemble, zkfence_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_session_timeout, "negotiated_timeout_of", lambda client: None)
    with server.client(session_timeout=600.0) as client:
        with FencedLock(client, "a", namespace=zkfence_namespace).acquire() as grant:
            assert not grant.deadline_is_verified
            assert grant.remaining() > MOST, "which is wrong"
        with FencedLock(client, "b", namespace=zkfence_namespace, session_timeout=MOST).acquire() as grant:
            assert grant.deadline_is_verified
            assert grant.remaining() <= MOST


def test_of_what_is_known_of_the_timeout_the_best_counts(
    connect: Callable[..., zkfence.Client], zkfence_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(session_timeout=8.0)
    session = Session.of(client)
    known: list[float | None] = [None]
    monkeypatch.setattr(_session_timeout, "negotiated_timeout_of", lambda client: known[0])
    session._state_changed("CONNECTED")
    assert (session.session_timeout, session.deadline_is_verified) == (8.0, False)
    FencedLock(client, "a", namespace=zkfence_namespace, session_timeout=6.0)
    FencedSemaphore(client, "b", permits=2, namespace=zkfence_namespace, session_timeout=7.0)
    assert (session.session_timeout, session.deadline_is_verified) == (6.0, True), "the shortest that was told"
    known[0] = 7.5
    session._state_changed("CONNECTED")
    assert (session.session_timeout, session.deadline_is_verified) == (7.5, True), "what the servers say"


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_a_session_timeout_that_cannot_be_is_refused(zk: zkfence.Client, seconds: float) -> None:
    with pytest.raises(ValueError, match="session_timeout"):
        FencedLock(zk, "a", session_timeout=seconds)
