"""A worker that is told to end gives its locks back: real processes, real signals, a real server."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import zkfence
from zkfence import FencedLock
from zkfence._bell import Bell
from zkfence.testing import LocalEnsemble

from .conftest import Background, Nodes

WORKER = Path(__file__).with_name("signalled_process.py")
TERMINATED = 128 + signal.SIGTERM
SOON = 5.0  # seconds; the sessions of the workers live for 30 without a word

Eventually = Callable[..., None]
Start = Callable[[Callable[[], object]], Background]


class Worker:
    """A worker process."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.signalled_at = 0.0

    def says(self, text: str) -> None:
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if said.strip() != text:
            self._process.kill()
            pytest.fail(f"said {said!r}, not {text!r}\n{self._process.communicate()[1]}")

    def signal(self, signum: signal.Signals = signal.SIGTERM) -> None:
        self.signalled_at = time.monotonic()
        self._process.send_signal(signum)

    def ends(self, status: int, within: float = SOON) -> str:
        """Its stderr."""
        _, errors = self._process.communicate(timeout=within)
        assert self._process.returncode == status, errors
        return errors

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def start(zkfence_ensemble: LocalEnsemble, zkfence_namespace: str) -> Iterator[Callable[..., Worker]]:
    started: list[Worker] = []

    def start(way: str, session_timeout: float = 30.0) -> Worker:
        command = [sys.executable, str(WORKER), way, zkfence_ensemble.hosts, zkfence_namespace, str(session_timeout)]
        started.append(Worker(command))
        return started[-1]

    yield start
    for worker in started:
        worker.kill()


def next_holder(worker: Worker, other: FencedLock) -> None:
    """Somebody else gets the lock long before the session times out."""
    other.acquire(timeout=SOON).release()
    print(f"free {time.monotonic() - worker.signalled_at:.3f} s after the signal")


def test_without_help_a_terminated_worker_keeps_its_lock_until_its_session_times_out(
    start: Callable[..., Worker], other: FencedLock, nodes: Nodes, zkfence_ensemble: LocalEnsemble
) -> None:
    worker = start("bare", session_timeout=3.0)
    worker.says("holding")
    worker.signal()
    worker.ends(-signal.SIGTERM)
    assert other.try_acquire() is None, "the lock hangs"
    other.acquire(timeout=10).release()
    assert time.monotonic() - worker.signalled_at > 1.5


@pytest.mark.parametrize(
    "way", ["holds", "never_closes", "acquires_and_releases", "pool", "task", "patient_task", "swallowed"]
)
def test_a_terminated_worker_gives_its_locks_back_at_once(
    start: Callable[..., Worker], other: FencedLock, nodes: Nodes, way: str
) -> None:
    worker = start(way)
    worker.says("holding")
    if way == "swallowed":
        worker.signalled_at = time.monotonic()
    else:
        worker.signal()
    next_holder(worker, other)
    errors = worker.ends(TERMINATED)
    assert "Traceback" not in errors
    assert [nodes.contenders(name) for name in "abcd"] == [[]] * 4


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGHUP])
def test_other_signals_do_so_on_request(
    start: Callable[..., Worker], other: FencedLock, signum: signal.Signals
) -> None:
    worker = start("holds_and_heeds_others")
    worker.says("holding")
    worker.signal(signum)
    next_holder(worker, other)
    worker.ends(128 + signum)


def test_an_ignored_signal_stays_ignored(start: Callable[..., Worker], other: FencedLock) -> None:
    worker = start("ignores_hangup")
    worker.says("holding")
    worker.signal(signal.SIGHUP)
    worker.signal(signal.SIGTERM)
    worker.ends(TERMINATED)


def test_a_terminated_waiter_leaves_no_node(
    start: Callable[..., Worker], other: FencedLock, nodes: Nodes, eventually: Eventually
) -> None:
    with other:
        worker = start("waits")
        worker.says("waiting")
        eventually(lambda: len(nodes.contenders("a")) == 2, "it stands in line")
        worker.signal()
        eventually(lambda: len(nodes.contenders("a")) == 1, "it has left the line")
        worker.ends(TERMINATED)


@pytest.mark.parametrize("delay", [0.0, 0.004])
def test_a_worker_that_is_terminated_in_the_middle_of_an_acquisition_leaves_no_node(
    start: Callable[..., Worker], other: FencedLock, nodes: Nodes, delay: float
) -> None:
    worker = start("acquires_and_releases")
    worker.says("holding")
    threading.Event().wait(delay)
    worker.signal()
    worker.ends(TERMINATED)
    assert nodes.contenders("a") == []


def test_without_interruption_the_step_is_finished_first(start: Callable[..., Worker], other: FencedLock) -> None:
    worker = start("finishes_its_step")
    worker.says("holding")
    worker.signal()
    worker.says("finished")
    worker.says("released")
    next_holder(worker, other)
    worker.ends(TERMINATED)


def test_a_step_that_takes_longer_than_the_grace_loses_the_lock_and_is_interrupted(
    start: Callable[..., Worker], other: FencedLock
) -> None:
    worker = start("overruns")
    worker.says("holding")
    worker.signal()
    next_holder(worker, other)
    worker.says("unwound")
    assert "the grace of 0.3 s was over" in worker.ends(TERMINATED)


def test_a_task_that_takes_longer_than_the_grace_loses_the_lock_and_is_cancelled(
    start: Callable[..., Worker], other: FencedLock
) -> None:
    worker = start("task_that_overruns")
    worker.says("holding")
    worker.signal()
    next_holder(worker, other)
    worker.says("lost")
    worker.ends(TERMINATED)


def test_a_thread_that_heeds_nothing_loses_the_lock_and_does_not_keep_the_process(
    start: Callable[..., Worker], other: FencedLock
) -> None:
    worker = start("stubborn_thread")
    worker.says("holding")
    worker.signal()
    worker.says("lost")
    next_holder(worker, other)
    worker.ends(TERMINATED)


def test_a_second_signal_ends_the_grace(start: Callable[..., Worker], other: FencedLock) -> None:
    worker = start("stubborn_thread_with_much_grace")
    worker.says("holding")
    worker.signal()
    assert other.try_acquire() is None, "as long as the work goes on, so does the lock"
    worker.signal()
    next_holder(worker, other)
    assert "it came again" in worker.ends(TERMINATED)


def test_a_host_that_handles_the_signal_decides_when_it_ends(start: Callable[..., Worker], other: FencedLock) -> None:
    worker = start("hosted")
    worker.says("holding")
    worker.signal()
    worker.says("host was told")
    next_holder(worker, other)
    worker.ends(0)


def test_a_host_that_lingers_does_not_keep_the_lock(start: Callable[..., Worker], other: FencedLock) -> None:
    worker = start("host_that_lingers")
    worker.says("holding")
    worker.signal()
    worker.says("host was told")
    next_holder(worker, other)
    assert not worker.ended
    worker.says("host goes on")
    worker.ends(0)


def test_a_forked_child_ends_as_it_would_have_and_its_parent_holds_on(
    start: Callable[..., Worker], other: FencedLock
) -> None:
    worker = start("forks")
    worker.says(f"child ended by {signal.SIGTERM.value}")
    worker.says("holding")
    assert other.try_acquire() is None
    worker.signal()
    next_holder(worker, other)
    worker.ends(TERMINATED)


def test_a_block_that_is_left_without_a_signal_leaves_nothing_behind(eventually: Eventually) -> None:
    handlers = [signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGHUP)]
    threads = threading.active_count()
    with zkfence.exit_on_signals(signal.SIGTERM, signal.SIGHUP) as stopping:
        assert threading.active_count() > threads
    assert not stopping.is_set()
    assert [signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGHUP)] == handlers
    eventually(lambda: threading.active_count() <= threads, "its threads have ended")


def test_it_has_to_be_entered_in_the_main_thread(in_background: Start) -> None:
    def enter() -> None:
        with zkfence.exit_on_signals():
            pass

    with pytest.raises(RuntimeError, match="main thread"):
        in_background(enter).result()


@pytest.mark.parametrize("grace", [-1.0, float("nan")])
def test_a_grace_that_is_none_is_refused(grace: float) -> None:
    with pytest.raises(ValueError, match="grace"):
        zkfence.exit_on_signals(grace=grace)


def test_a_signal_that_cannot_be_handled_leaves_the_others_as_they_were() -> None:
    before, threads = signal.getsignal(signal.SIGTERM), threading.active_count()
    with pytest.raises(OSError, match="Invalid argument"), zkfence.exit_on_signals(signal.SIGTERM, signal.SIGKILL):
        pytest.fail("entered")
    assert signal.getsignal(signal.SIGTERM) == before
    assert threading.active_count() == threads


def test_a_server_that_says_nothing_keeps_no_lock_on_another_ensemble(
    zkfence_ensemble: LocalEnsemble, zkfence_namespace: str, nodes: Nodes, eventually: Eventually
) -> None:
    program = str(Path(__file__).with_name("closing_process.py"))
    with LocalEnsemble(durable=False) as silent:
        command = [sys.executable, program, zkfence_namespace, silent.hosts, zkfence_ensemble.hosts]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
            try:
                assert worker.stdin is not None
                assert worker.stdout is not None
                assert worker.stdout.readline() == "holding 2\n"
                assert len(nodes.contenders("a")) == 1
                silent.nodes[0].pause()
                worker.stdin.write("close\n")
                worker.stdin.flush()
                assert worker.wait(10) == 0
                eventually(lambda: nodes.contenders("a") == [], "its lock is free", within=SOON)
            finally:
                worker.kill()
                silent.nodes[0].resume()


# Python runs no handler for a signal that comes just before its main thread falls asleep, until it wakes up.


def test_the_main_thread_waits_for_a_lock_in_steps(
    lock: FencedLock, other: FencedLock, monkeypatch: pytest.MonkeyPatch, in_background: Start
) -> None:
    waits: list[float | None] = []
    wait = Bell.wait

    def recorded(bell: Bell, timeout: float | None = None) -> bool:
        if threading.current_thread() is threading.main_thread():
            waits.append(timeout)
        return wait(bell, timeout)

    monkeypatch.setattr(Bell, "wait", recorded)
    grant = other.acquire()
    releasing = in_background(lambda: (time.sleep(1.2), grant.release()))
    lock.acquire().release()
    releasing.result()
    assert all(timeout is not None and timeout <= 1.0 for timeout in waits), waits


async def sleeps_of_a_loop() -> tuple[float, bool]:
    """How long an event loop that has nothing to do sleeps in the block, and whether that ends with it."""
    loop = asyncio.get_running_loop()
    async with zkfence.exit_on_signals(signal.SIGTERM):
        await asyncio.sleep(0)
        (tick,) = [each for each in loop._scheduled if not each.cancelled()]  # type: ignore[attr-defined]
        longest = tick.when() - loop.time()
    return longest, tick.cancelled()


def test_the_event_loop_does_not_sleep_for_long() -> None:
    longest, has_ended = asyncio.run(sleeps_of_a_loop())
    assert longest <= 0.25
    assert has_ended
