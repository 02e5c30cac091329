"""Lost replies: connections that break, servers that lag or die, processes that are paused, at chosen requests."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import zkfence
from zkfence import FencedLock, LockLost, LockTimeout, NotConnected
from zkfence.testing import LocalEnsemble, Zombie, waiting

from .conftest import Background, Nodes
from .lagging import lagging_follower
from .proxy import CLOSE, CREATE2, DELETE, MULTI, PING, SYNC, Chosen, Proxy, of

Start = Callable[[Callable[[], Any]], Background]
Eventually = Callable[..., None]
WAITING_PROCESS = Path(__file__).with_name("waiting_process.py")


@pytest.fixture
def proxy(zkfence_ensemble: LocalEnsemble) -> Iterator[Proxy]:
    with Proxy(zkfence_ensemble.nodes[0].address) as proxy:
        yield proxy


@pytest.fixture
def behind_proxy(proxy: Proxy) -> Iterator[zkfence.Client]:
    with zkfence.connect(proxy.address, session_timeout=10.0) as client:
        yield client
        proxy.heal()


@pytest.fixture
def lock(behind_proxy: zkfence.Client, zkfence_namespace: str) -> FencedLock:
    return FencedLock(behind_proxy, "a", namespace=zkfence_namespace)


@pytest.fixture(scope="module")
def ensemble3() -> Iterator[LocalEnsemble]:
    """Three servers of the tests' own, to be killed and restarted."""
    with LocalEnsemble(nodes=3, durable=False) as ensemble:
        yield ensemble


def the(number: int) -> Chosen:
    """The request with this number, from 0, of those that are not pings."""
    counted = count()
    return lambda request: request.opcode != PING and next(counted) == number


# --- no orphans ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False], ids=["known lock", "new lock"])
@pytest.mark.parametrize("what", ["reply", "request"])
def test_whatever_is_lost_of_an_acquisition_there_is_one_own_node_and_then_none(
    proxy: Proxy, behind_proxy: zkfence.Client, nodes: Nodes, zkfence_namespace: str, eventually: Eventually,
    what: str, known: bool,
) -> None:  # fmt: skip
    lose = proxy.lose_reply if what == "reply" else proxy.lose_request
    lock = FencedLock(behind_proxy, "a", namespace=zkfence_namespace)
    lock.acquire(timeout=10).release()
    for number in count():
        if not known:
            lock = FencedLock(behind_proxy, f"a{number}", namespace=zkfence_namespace)
        strike = lose(the(number))
        with lock.acquire(timeout=10) as grant:
            assert nodes.contenders(lock.name) == [grant.path]
        eventually(
            lambda name=lock.name: nodes.contenders(name) == [],
            f"nothing stays behind; lost was {what} {number}",
        )
        if not strike.done.is_set():
            assert number >= (3 if known else 6), "every request of the acquisition and of the release had its turn"
            return


def test_a_create_whose_reply_is_lost_is_found_again_on_a_server_that_lags(
    ensemble3: LocalEnsemble, zkfence_namespace: str, in_background: Start, eventually: Eventually
) -> None:
    with (
        lagging_follower(ensemble3) as (follower, lag),
        Proxy(ensemble3.leader().address) as proxy,
        zkfence.connect(proxy.address, session_timeout=20.0) as client,
        ensemble3.client(hosts=ensemble3.leader().address) as zk,
        ensemble3.client(hosts=follower.address) as lagging,
    ):
        nodes = Nodes(zk, zkfence_namespace)
        lock = FencedLock(client, "a", namespace=zkfence_namespace)
        lock.acquire().release()
        session = client.client_id

        def move() -> None:
            proxy.target = follower.address

        lagging.sync("/")
        lag.begin()
        strike = proxy.lose_reply(of(CREATE2), then=move)
        before = proxy.requests.copy()
        acquiring = in_background(lambda: lock.acquire(timeout=30))
        assert strike.done.wait(10)
        (made,) = nodes.contenders("a")
        assert Nodes(lagging, zkfence_namespace).contenders("a") == [], "the follower does not know of the node"
        eventually(
            lambda: any(proxy.requests[opcode] > before[opcode] + (opcode == CREATE2) for opcode in (SYNC, CREATE2)),
            "the client is there, and either has what it sees confirmed or makes a second node",
        )
        lag.end()
        grant = acquiring.result()
        assert client.client_id == session
        assert nodes.contenders("a") == [grant.path] == [made]
        grant.release()
        assert nodes.contenders("a") == []


@pytest.mark.parametrize("tries", [300, pytest.param(1000, marks=pytest.mark.long)])
def test_try_acquire_leaves_nothing_while_the_connection_flaps(
    proxy: Proxy, lock: FencedLock, other: FencedLock, nodes: Nodes, eventually: Eventually, tries: int
) -> None:
    flaps = random.Random(3)
    over = threading.Event()

    def flap() -> int:
        for cuts in count():
            if over.wait(flaps.uniform(0.1, 0.3)):
                return cuts
            proxy.cut()
        raise AssertionError

    def attempt(_: int) -> bool:
        try:
            return lock.try_acquire() is not None
        except NotConnected:
            return False

    with other as held, ThreadPoolExecutor(9) as threads:
        flapping = threads.submit(flap)
        try:
            assert not any(threads.map(attempt, range(tries)))
        finally:
            over.set()
        assert flapping.result() > 2
        eventually(lambda: nodes.contenders("a") == [held.path], "only the holder is there")
        held.check()
    lock.acquire(timeout=5).release()
    assert nodes.contenders("a") == []


@pytest.mark.parametrize("what", ["reply", "request"])
def test_a_cut_in_the_middle_of_a_release_keeps_nobody_waiting(
    proxy: Proxy, lock: FencedLock, other: FencedLock, nodes: Nodes, what: str
) -> None:
    grant = lock.acquire()
    lose = proxy.lose_reply if what == "reply" else proxy.lose_request
    strike = lose(of(DELETE, MULTI, naming=grant.path))
    grant.release()
    assert strike.done.is_set()
    assert nodes.contenders("a") == []
    with lock.acquire(timeout=2) as again:
        assert again.token > grant.token
        assert nodes.contenders("a") == [again.path]
    with other.acquire(timeout=2) as another:
        assert another.token > again.token


def test_an_acquisition_that_hears_nothing_meets_its_deadline_and_leaves_nothing(
    proxy: Proxy, lock: FencedLock, nodes: Nodes, eventually: Eventually
) -> None:
    """One way: its requests arrive, and no reply comes back."""
    lock.acquire().release()
    proxy.to_client.hold()
    with pytest.raises(LockTimeout):
        lock.acquire(timeout=0.3)
    eventually(lambda: len(nodes.contenders("a")) == 1, "the node was made")
    proxy.heal()
    eventually(lambda: nodes.contenders("a") == [], "and it goes once the replies are there")
    lock.acquire(timeout=5).release()


# --- holding and losing -------------------------------------------------------------------------------------------


def test_a_heartbeat_whose_reply_is_lost_costs_no_grant(
    zkfence_ensemble: LocalEnsemble, nodes: Nodes, zkfence_namespace: str, in_background: Start, eventually: Eventually
) -> None:
    """Whenever between two beats the lock was granted."""
    timeout, phases = 6.0, 6

    def hold(phase: int) -> None:
        name = f"a{phase}"
        with (
            Proxy(zkfence_ensemble.nodes[0].address) as proxy,
            zkfence.connect(proxy.address, session_timeout=timeout) as client,
        ):
            lock = FencedLock(client, name, namespace=zkfence_namespace)
            lock.acquire().release()  # from now on the heart beats
            time.sleep(timeout / 6 * phase / phases)
            with lock.acquire() as grant:
                strike = proxy.lose_reply(of(MULTI))
                assert strike.done.wait(timeout), "there is a heartbeat"
                deadline = time.monotonic() + grant.remaining()
                eventually(
                    lambda: grant.lost.is_set() or time.monotonic() + grant.remaining() > deadline + timeout / 12,
                    "the next ones put the deadline off",
                )
                grant.check()
                assert nodes.contenders(name) == [grant.path]

    holding = [in_background(lambda phase=phase: hold(phase)) for phase in range(phases)]  # type: ignore[misc]
    for each in holding:
        each.result()


def test_a_lock_is_not_granted_on_a_dying_node_of_the_session_before(
    proxy: Proxy, behind_proxy: zkfence.Client, lock: FencedLock, nodes: Nodes
) -> None:
    """The server has not heard that the session is over, and lists its node until it times out."""
    with zkfence.connect(proxy.address, session_timeout=2.0) as client:
        lock = FencedLock(client, "a", namespace=lock._layout.namespace)
        old = lock.acquire()
        session = client.client_id
        strike = proxy.lose_request(of(CLOSE))
        client.stop()
        assert strike.done.is_set()
        client.start()
        assert client.client_id != session
        assert nodes.contenders("a") == [old.path], "it is still there"
        with pytest.raises(LockLost):
            old.check()
        assert lock.try_acquire() is None
        with lock.acquire(timeout=20) as new:
            assert new.token > old.token
            assert nodes.contenders("a") == [new.path] != [old.path]
            old.release()
            assert nodes.contenders("a") == [new.path]


def test_a_waiter_that_was_paused_past_its_session_is_not_granted_on_it(
    lock: FencedLock, other: FencedLock, other_zk: zkfence.Client, nodes: Nodes, zkfence_ensemble: LocalEnsemble,
    zkfence_namespace: str, eventually: Eventually,
) -> None:  # fmt: skip
    first = lock.acquire()
    command = [sys.executable, str(WAITING_PROCESS), zkfence_ensemble.hosts, zkfence_namespace, "1.5"]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
        Zombie(process) as zombie,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        dead = zombie.pause_past_session(other_zk, waiting("a", namespace=zkfence_namespace))
        first.release()  # its turn has come, and gone
        second = other.acquire(timeout=5)
        zombie.resume()
        eventually(lambda: len(nodes.contenders("a")) == 2, "it stands in line anew", within=10)
        assert nodes.contenders("a")[0] == second.path
        second.release()
        granted = json.loads(process.stdout.readline())
        assert granted["token"] > second.token > first.token
        assert [granted["path"]] == nodes.contenders("a") != [dead]
        stat = other_zk.exists(granted["path"])
        assert stat is not None
        assert stat.ephemeralOwner == granted["session"], "its node belongs to the session that it has now"
        process.stdin.close()
        assert process.wait(20) == 0


def test_the_death_of_the_leader_costs_no_grant(ensemble3: LocalEnsemble, zkfence_namespace: str) -> None:
    leader = ensemble3.leader()
    addresses = [leader.address, *(node.address for node in ensemble3.nodes if node is not leader)]
    with (
        zkfence.connect(",".join(addresses), session_timeout=10.0, randomize_hosts=False) as of_leader,
        zkfence.connect(",".join(reversed(addresses)), session_timeout=10.0, randomize_hosts=False) as of_follower,
    ):
        grants = [
            FencedLock(client, name, namespace=zkfence_namespace).acquire()
            for client, name in ((of_leader, "a"), (of_follower, "b"))
        ]
        tokens = [grant.token for grant in grants]
        leader.kill()
        ensemble3.wait_for_quorum()
        with ensemble3.client() as zk, zkfence.connect(ensemble3.hosts) as rival:
            zk.sync("/")
            for grant in grants:
                assert FencedLock(rival, grant.lock_name, namespace=zkfence_namespace).try_acquire() is None
                assert not grant.lost.wait(0.5)
                grant.check()
            assert [grant.token for grant in grants] == tokens
            for grant in grants:
                grant.release()
                later = FencedLock(rival, grant.lock_name, namespace=zkfence_namespace).acquire(timeout=10)
                assert later.token > grant.token
                later.release()
    leader.restart()
    leader.wait_until_serving()
