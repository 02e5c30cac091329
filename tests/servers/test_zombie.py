"""Zombie: a real worker process, paused past its session, that wakes up too late."""

from __future__ import annotations

import contextlib
import itertools
import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

import zkfence
from zkfence.testing import LocalEnsemble, Zombie, ZombieError, holding, waiting
from zkfence_receivers.testing._signals import _thread_states, has_ended
from zkfence_receivers.testing._wait import wait_until

LOCK = "reports/7 – é"

# Each tells one line when it has come to where the test wants it, and another when it learns that it was too late.
KEEPS_A_NODE = """
import sys, threading
from kazoo.client import KazooClient
hosts, namespace = sys.argv[1:]
lost = threading.Event()
zk = KazooClient(hosts, timeout=2.0)
zk.add_listener(lambda state: lost.set() if state == "LOST" else None)
zk.start()
zk.create(namespace + "/worker", ephemeral=True, makepath=True)
print("ready", flush=True)
lost.wait(60)
print("lost", flush=True)
"""

TAKES_THE_LOCK = f"""
import sys, zkfence
hosts, namespace = sys.argv[1:]
with zkfence.connect(hosts, session_timeout=2.0) as zk:
    print("ready", flush=True)
    grant = zkfence.FencedLock(zk, {LOCK!r}, namespace=namespace).acquire(timeout=60.0)
    print(int(grant.token), flush=True)
    grant.lost.wait(60)
    print("lost", flush=True)
"""

Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def start(zkfence_ensemble: LocalEnsemble, zkfence_namespace: str) -> Iterator[Start]:
    """Starts a worker, and waits until it is ready; all of them are killed after the test."""
    with contextlib.ExitStack() as workers:

        def start(program: str) -> subprocess.Popen[str]:
            arguments = [sys.executable, "-c", program, zkfence_ensemble.hosts, zkfence_namespace]
            worker = workers.enter_context(subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True))
            workers.callback(worker.kill)
            assert told_by(worker) == "ready"
            return worker

        yield start


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process with several threads and no session."""
    program = "import threading, time\nfor _ in range(4): threading.Thread(target=time.sleep, args=(60,)).start()"
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        yield process
        process.kill()


def told_by(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    return worker.stdout.readline().strip()


def stands(pid: int) -> bool:
    return _thread_states(pid) == {"T"}


def test_the_session_is_over_and_the_worker_learns_it_only_when_it_wakes(
    start: Start, zkfence_zk: KazooClient, zkfence_namespace: str
) -> None:
    path = f"{zkfence_namespace}/worker"
    worker = start(KEEPS_A_NODE)
    with Zombie(worker) as zombie:
        assert zombie.pause_past_session(zkfence_zk, path) == path
        assert zkfence_zk.exists(path) is None
        assert stands(worker.pid)
        zombie.resume()
        assert told_by(worker) == "lost"


def test_a_lock_holder_is_found_by_its_pid_and_the_next_holder_has_a_larger_token(
    start: Start, zkfence_zk: KazooClient, zkfence_namespace: str
) -> None:
    worker = start(TAKES_THE_LOCK)
    with Zombie(worker) as zombie:
        zombie.pause_past_session(zkfence_zk, holding(LOCK, namespace=zkfence_namespace))
        with zkfence.FencedLock(zkfence_zk, LOCK, namespace=zkfence_namespace) as grant:
            assert stands(worker.pid)
            zombie.resume()
            assert 0 < int(told_by(worker)) < grant.token
            assert told_by(worker) == "lost"


def test_a_waiter_is_no_holder_and_can_be_made_a_zombie_too(
    start: Start, zkfence_zk: KazooClient, zkfence_namespace: str
) -> None:
    with zkfence.FencedLock(zkfence_zk, LOCK, namespace=zkfence_namespace):
        worker = start(TAKES_THE_LOCK)
        with Zombie(worker) as zombie:
            with pytest.raises(ZombieError, match="no such node"):
                zombie.pause_past_session(zkfence_zk, holding(LOCK, namespace=zkfence_namespace), timeout=0.3)
            path = zombie.pause_past_session(zkfence_zk, waiting(LOCK, namespace=zkfence_namespace))
            assert zkfence_zk.exists(path) is None
            assert len(zkfence_zk.get_children(path.rpartition("/")[0])) == 1


def test_the_first_of_the_oldest_epoch_holds_and_other_children_do_not_count(
    zkfence_zk: KazooClient, zkfence_namespace: str
) -> None:
    lock = f"{zkfence_namespace}/locks/a%2Fb"
    pids = {"10/x-0000000001": 1, "9/x-0000000012": 2, "9/x-0000000003": 3, "9/note": 4, "9/x-2147483647": 5}
    for name, pid in pids.items():
        zkfence_zk.create(f"{lock}/{name}", json.dumps({"pid": pid}).encode(), makepath=True)
    hold, wait = holding("a/b", namespace=zkfence_namespace), waiting("a/b", namespace=zkfence_namespace)
    assert {pid: hold(zkfence_zk, pid) for pid in range(1, 6)} == dict.fromkeys(range(1, 6)) | {
        3: f"{lock}/9/x-0000000003"
    }
    assert [wait(zkfence_zk, pid) for pid in (1, 2, 3, 4, 5)] == [
        f"{lock}/10/x-0000000001",
        f"{lock}/9/x-0000000012",
        None,
        None,
        None,
    ]
    assert holding("no such lock", namespace=zkfence_namespace)(zkfence_zk, 1) is None
    assert waiting("no such lock", namespace=zkfence_namespace)(zkfence_zk, 1) is None


def test_a_node_that_goes_before_the_worker_stands_still_does_not_count(
    start: Start, zkfence_zk: KazooClient, zkfence_namespace: str
) -> None:
    path = f"{zkfence_namespace}/worker"
    worker = start(KEEPS_A_NODE)
    found = iter([f"{zkfence_namespace}/released"] * 2)

    def find(zk: KazooClient, pid: int) -> str:
        assert not stands(pid)
        return next(found, path)

    with Zombie(worker) as zombie:
        assert zombie.pause_past_session(zkfence_zk, find, settle=0.0) == path


def test_a_node_that_flickers_is_not_taken(
    sleeper: subprocess.Popen[bytes], zkfence_zk: KazooClient, zkfence_namespace: str
) -> None:
    names = itertools.cycle([f"{zkfence_namespace}/{number}" for number in range(2)])
    for _ in range(2):
        zkfence_zk.create(next(names), ephemeral=True, makepath=True)
    with Zombie(sleeper) as zombie, pytest.raises(ZombieError, match="for long enough"):
        zombie.pause_past_session(zkfence_zk, lambda zk, pid: next(names), timeout=0.5)
    assert not stands(sleeper.pid)


def test_a_node_that_no_session_owns_is_an_error(
    sleeper: subprocess.Popen[bytes], zkfence_zk: KazooClient, zkfence_namespace: str
) -> None:
    zkfence_zk.create(zkfence_namespace)
    with pytest.raises(ZombieError, match="not ephemeral"):
        Zombie(sleeper).pause_past_session(zkfence_zk, zkfence_namespace)
    assert not stands(sleeper.pid)


def test_a_session_that_does_not_end_in_time_is_an_error_and_the_worker_goes_on(
    sleeper: subprocess.Popen[bytes], zkfence_zk: KazooClient, zkfence_namespace: str
) -> None:
    zkfence_zk.create(zkfence_namespace, ephemeral=True)  # the session of this test, and not of the worker
    with pytest.raises(ZombieError, match=r"still there after 0\.5 s"):
        Zombie(sleeper).pause_past_session(zkfence_zk, zkfence_namespace, timeout=0.5)
    assert not stands(sleeper.pid)


def test_a_pause_stops_every_thread_and_the_end_of_the_block_resumes(sleeper: subprocess.Popen[bytes]) -> None:
    assert wait_until(lambda: len(list(Path(f"/proc/{sleeper.pid}/task").iterdir())) == 5, timeout=10.0)
    with Zombie(sleeper.pid) as zombie:
        for _ in range(20):
            zombie.pause()
            assert stands(sleeper.pid)
            zombie.resume()
        zombie.pause()
        zombie.pause()
    assert not stands(sleeper.pid)


def test_a_process_that_has_ended_is_told_apart_from_a_paused_one(
    sleeper: subprocess.Popen[bytes], zkfence_zk: KazooClient
) -> None:
    with Zombie(sleeper) as zombie:
        sleeper.kill()
        assert wait_until(lambda: has_ended(sleeper.pid), timeout=5.0)  # and its status is not collected yet
        for attempt in (zombie.pause, zombie.resume, lambda: zombie.pause_past_session(zkfence_zk, "/")):
            with pytest.raises(ZombieError, match="has ended"):
                attempt()
        sleeper.wait()
        with pytest.raises(ZombieError, match="has ended"):
            zombie.pause()


def test_a_multiprocessing_process_will_do_and_has_to_be_started() -> None:
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    with pytest.raises(ZombieError, match="start it first"):
        Zombie(process)
    process.start()
    with Zombie(process) as zombie:
        zombie.pause()
        assert stands(zombie.pid)
        process.kill()
        process.join()
    process.close()
