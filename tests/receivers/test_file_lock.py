"""FileReceiver's locks: one request at a time per resource, a clear end for those who wait, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from zkfence_receivers import FileReceiver, StaleToken, Stamp, StoreBusy, StoreFailed
from zkfence_receivers._files import _lock
from zkfence_receivers._files._lock import Locks

CHILD = Path(__file__).with_name("file_child.py")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileReceiver]:
    with FileReceiver(tmp_path / "store", lock_timeout=0.2) as receiver:
        yield receiver


@pytest.fixture
def start_child(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    children: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, str(CHILD), arguments[0], str(tmp_path / "store"), *arguments[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        child.communicate()


def wait_until_stopped(child: subprocess.Popen[str]) -> None:
    assert os.WIFSTOPPED(os.waitpid(child.pid, os.WUNTRACED)[1])


def test_a_stopped_holder_ends_in_a_timeout_that_names_it(
    store: FileReceiver, start_child: Callable[..., subprocess.Popen[str]]
) -> None:
    store.claim("report", Stamp(7, op=1)).write(b"one")
    child = start_child("stop-in-a-write", "report", "7")  # stops itself between the decision and the rename
    wait_until_stopped(child)
    started = time.monotonic()
    for refused in (
        lambda: store.claim("report", Stamp(8, op=1)),
        lambda: store.apply_stamped("report", b"two", Stamp(8, op=1)),
        lambda: store.mark("report"),
    ):
        with pytest.raises(StoreBusy, match=rf"process {child.pid} on ") as caught:
            refused()
        assert caught.value.resource == "report"
    assert time.monotonic() - started < 10
    store.claim("another", Stamp(1, op=1)).write(b"is not in its way")
    child.send_signal(signal.SIGCONT)
    assert child.communicate(timeout=10)[0] == "written\n"
    assert store.claim("report", Stamp(8, op=1)).read() == b"from the child"
    with pytest.raises(StaleToken):
        store.claim("report", Stamp(7, op=9))


def test_a_stopped_holder_that_is_killed_is_out_of_the_way(
    store: FileReceiver, start_child: Callable[..., subprocess.Popen[str]]
) -> None:
    store.claim("report", Stamp(7, op=1)).write(b"one")
    child = start_child("stop-in-a-write", "report", "7")
    wait_until_stopped(child)
    child.kill()
    child.wait()
    assert store.claim("report", Stamp(8, op=1)).read() == b"one"


def test_a_paused_worker_that_wakes_up_late_is_refused(
    store: FileReceiver, start_child: Callable[..., subprocess.Popen[str]]
) -> None:
    child = start_child("stop-before-a-write", "report", "7")  # claims, stops without the lock, writes
    wait_until_stopped(child)
    new = store.claim("report", Stamp(8, op=1))
    child.send_signal(signal.SIGCONT)
    assert json.loads(child.communicate(timeout=10)[0]) == {"error": "StaleToken", "token": 7, "mark": 8}
    new.write(b"new")
    assert new.read() == b"new"


def test_waiting_ends_at_one_deadline_for_queue_and_lock_together(tmp_path: Path) -> None:
    with FileReceiver(tmp_path / "store", lock_timeout=0.6) as store, FileReceiver(tmp_path / "store") as other:
        outcomes: list[float] = []

        def wait() -> None:
            started = time.monotonic()
            with pytest.raises(StoreBusy):
                store.claim("report", Stamp(7, op=1))
            outcomes.append(time.monotonic() - started)

        with other._locks.hold("report.lock", "report"):
            waiting = [threading.Thread(target=wait) for _ in range(4)]
            for thread in waiting:
                thread.start()
            for thread in waiting:
                thread.join(20)
        assert len(outcomes) == 4
        assert all(0.6 <= seconds < 2 * 0.6 for seconds in outcomes)  # not 0.6, 1.2, 1.8, 2.4
        assert store._locks._mutexes._users == {}
        assert store.claim("report", Stamp(7, op=1)).read() is None


def test_no_waiting_at_all_can_be_asked_for(tmp_path: Path) -> None:
    with FileReceiver(tmp_path / "store", lock_timeout=0) as store:
        report = store.claim("report", Stamp(7, op=1))
        with (
            FileReceiver(tmp_path / "store") as other,
            other._locks.hold("report.lock", "report"),
            pytest.raises(StoreBusy),
        ):
            report.read()
        assert report.read() is None


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError, ZeroDivisionError])
def test_the_lock_is_free_after_any_exception(
    store: FileReceiver, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    report = store.claim("report", Stamp(7, op=1))
    report.write(b"one")

    def interrupted(*_: object, **__: object) -> None:
        raise error

    for step in ("open", "pwrite", "write", "fsync", "rename"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, interrupted)
            with pytest.raises(error):
                report.write(b"two")
        assert store._locks._mutexes._users == {}
        assert report.read() == b"one"
    report.write(b"three")
    assert report.read() == b"three"
    ours = Path(store._root.ours.path)
    assert {path.name for path in ours.iterdir()} == {"+store.lock", "+store.mark", "report.lock", "report.mark"}


def test_a_forked_child_keeps_no_lock_of_its_parent(
    store: FileReceiver, start_child: Callable[..., subprocess.Popen[str]]
) -> None:
    # A process whose thread holds the lock forks, then is killed; the fork lives on.
    child = start_child("fork-with-a-lock", "report")
    assert child.stdout is not None
    grandchild = int(child.stdout.readline())
    try:
        with pytest.raises(StoreBusy):
            store.claim("report", Stamp(7, op=1))
        child.kill()
        child.wait()
        os.kill(grandchild, 0)
        assert store.claim("report", Stamp(7, op=1)).read() is None
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_a_forked_child_can_use_the_receiver_of_its_parent(start_child: Callable[..., subprocess.Popen[str]]) -> None:
    # At the time of the fork another thread of the parent holds the mutex, which nobody in the child would release.
    child = start_child("use-after-fork", "report")
    assert child.communicate(timeout=20)[0] == "the child wrote\n"


def test_a_signal_while_the_lock_is_given_back_does_not_leave_it_locked(
    store: FileReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(set[int]):
        armed = True

        def discard(self, fd: int) -> None:
            super().discard(fd)
            if self.armed:
                self.armed = False
                raise KeyboardInterrupt

    report = store.claim("report", Stamp(7, op=1))
    monkeypatch.setattr(_lock, "_held", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        report.write(b"one")
    report.write(b"two")
    assert report.read() == b"two"


def test_a_signal_between_getting_a_mutex_and_noting_it_does_not_leave_it_locked(store: FileReceiver) -> None:
    class Interrupted:
        """A mutex whose first acquisition succeeds, and is interrupted before it can say so."""

        def __init__(self) -> None:
            self._mutex = threading.RLock()
            self.armed = True

        def acquire(self, timeout: float) -> bool:
            acquired = self._mutex.acquire(timeout=timeout)
            if self.armed:
                self.armed = False
                raise KeyboardInterrupt
            return acquired

        def release(self) -> None:
            self._mutex.release()

    report = store.claim("report", Stamp(7, op=1))
    store._locks._mutexes._users["report.lock"] = Interrupted(), 1
    with pytest.raises(KeyboardInterrupt):
        report.write(b"one")
    with ThreadPoolExecutor(1) as another:
        another.submit(report.write, b"two").result()
    assert report.read() == b"two"


@pytest.mark.parametrize("how", ["deleted", "moved"])
def test_a_lock_file_that_goes_while_others_wait_for_it_divides_nobody(tmp_path: Path, how: str) -> None:
    with FileReceiver(tmp_path / "store") as store:
        lock_file = tmp_path / "store" / ".zkfence" / "report.lock"
        inside: list[str] = []
        one, two = Locks(store._root.ours, 10), Locks(store._root.ours, 10)
        waiting = threading.Event()

        def wait() -> None:
            waiting.set()
            with one.hold("report.lock", "report"):
                inside.append("one")
                with pytest.raises(StoreBusy), Locks(store._root.ours, 0).hold("report.lock", "report"):
                    inside.append("somebody else")

        with two.hold("report.lock", "report"):
            thread = threading.Thread(target=wait)
            thread.start()
            assert waiting.wait(10)
            if how == "deleted":
                lock_file.unlink()
            else:
                lock_file.rename(lock_file.with_name("aside"))
        thread.join(20)
        assert inside == ["one"]


def test_what_an_interrupted_request_did_is_made_durable_before_it_is_told(
    store: FileReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the rename and the fsync of the folder: the data is to be seen, but might not survive."""
    report = store.claim("report", Stamp(7, op=1))
    second = Stamp(7, op=2)
    fsync, folders = os.fsync, {store._root.data.fd, store._root.ours.fd}

    def killed(fd: int) -> None:
        if fd in folders:
            raise KeyboardInterrupt
        fsync(fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", killed)
        with pytest.raises(KeyboardInterrupt):
            store.apply_stamped("report", b"one", second)
    synced: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: (synced.append(fd), fsync(fd)))
        assert store.apply_stamped("report", b"one", second).duplicate
    assert folders <= set(synced)
    assert report.read() == b"one"


def test_no_other_request_of_a_finished_process_costs_anything(
    store: FileReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = store.claim("report", Stamp(7, op=1))
    report.write(b"one")
    refuse: Callable[[int], None] = lambda fd: pytest.fail("fsync")  # noqa: E731
    monkeypatch.setattr(os, "fsync", refuse)
    assert report.read() == b"one"
    assert store.mark("report") is not None
    with pytest.raises(StaleToken):
        store.claim("report", Stamp(6, op=1))


def test_a_request_that_cannot_note_that_it_begins_does_not_begin(
    store: FileReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = store.claim("report", Stamp(7, op=1))
    report.write(b"one")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(StoreFailed, match="No space left"):
            report.write(b"two")
    assert report.read() == b"one"


def test_opening_a_store_waits_no_longer_than_it_may(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with (
        FileReceiver(root) as store,
        store._locks.hold("+store.lock", "the store"),
        pytest.raises(StoreBusy, match="it stayed locked for all of 0 s"),
    ):
        FileReceiver(root, lock_timeout=0)
