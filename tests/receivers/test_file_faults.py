"""FileReceiver and what goes wrong in the middle: kill -9, errors of each call, full disks, an fsync that fails."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from zkfence_receivers import FileReceiver, OutcomeUnknown, Stamp, StoreFailed
from zkfence_receivers._files._root import Keeping

STEPS = Path(__file__).with_name("file_steps.py")


@pytest.fixture(params=list(Keeping))
def keeping(request: pytest.FixtureRequest) -> Keeping:
    return Keeping(request.param)


@pytest.fixture
def store(tmp_path: Path, keeping: Keeping) -> Iterator[FileReceiver]:
    with FileReceiver(tmp_path / "store", _xattrs=keeping is Keeping.XATTR) as receiver:
        yield receiver


def stamp(token: int, op: int = 1) -> Stamp:
    return Stamp(token, "n/l", f"holder-{token}", op=op)


def files_of(store: FileReceiver) -> set[str]:
    root = Path(store._root.data.path)
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and "+store" not in path.name}


@pytest.mark.parametrize("how", ["kill", "fail"])
def test_interrupted_at_any_system_call_a_request_is_done_or_not_done(keeping: Keeping, how: str) -> None:
    sweep = subprocess.run(
        [sys.executable, str(STEPS), how, keeping], capture_output=True, text=True, timeout=200, check=False
    )
    assert sweep.returncode == 0, sweep.stderr
    assert int(sweep.stdout) > 200


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_finds_no_room_changes_nothing_and_may_be_sent_again(store: FileReceiver) -> None:
    """A real refusal by the kernel in the middle of the data: the limit of the size of a file."""
    report = store.claim("report", stamp(7))
    report.write(b"one")
    mark, large, again = store.mark("report"), b"x" * 1_000_000, stamp(7, 5)
    with file_size_limit(65536):
        for _ in range(3):
            with pytest.raises(StoreFailed, match="File too large") as caught:
                store.apply_stamped("report", large, again)
            assert isinstance(caught.value.__cause__, OSError)
            assert caught.value.__cause__.errno == errno.EFBIG
            assert store.mark("report") == mark
            assert report.read() == b"one"
            assert files_of(store) == {"report", ".zkfence/report.lock", ".zkfence/report.mark"}
    assert not store.apply_stamped("report", large, again).duplicate
    assert report.read() == large


def test_a_full_disk_changes_nothing_and_a_deletion_makes_room(
    store: FileReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = store.claim("report", stamp(7))
    report.write(b"one")
    write = os.write

    def full(fd: int, content: bytes) -> int:
        if len(content) > 4096:
            write(fd, content[:1000])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, content)

    monkeypatch.setattr(os, "write", full)
    for sent in (stamp(7, 3), stamp(8, 1)):  # by the holder, and by a newer one that has not claimed
        with pytest.raises(StoreFailed, match="No space left"):
            store.apply_stamped("report", b"two" * 10_000, sent)
        mark = store.mark("report")
        assert mark is not None
        assert (mark.token, mark.op) < (sent.token, sent.op)  # nothing is recorded that was not done
    newest = store.claim("report", stamp(9))
    assert newest.read() == b"one"
    assert newest.delete()
    monkeypatch.undo()
    newest.write(b"two" * 10_000)
    assert newest.read() == b"two" * 10_000


def count_of_fsyncs(
    store: FileReceiver, monkeypatch: pytest.MonkeyPatch, request: Callable[[], object]
) -> tuple[int, int]:
    """How many of files, how many of folders."""
    synced: list[int] = []
    fsync = os.fsync
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: (synced.append(fd), fsync(fd)))
        request()
    folders = sum(fd in (store._root.data.fd, store._root.ours.fd) for fd in synced)
    return len(synced) - folders, folders


def test_a_request_costs_what_the_documentation_says(
    store: FileReceiver, keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cost(request: Callable[[], object]) -> tuple[int, int]:
        return count_of_fsyncs(store, monkeypatch, request)

    xattr = keeping is Keeping.XATTR
    assert cost(lambda: store.claim("report", stamp(7))) == (1, 1)
    report = store.claim("report", stamp(8))
    assert cost(lambda: report.write(b"one")) == ((1, 1) if xattr else (2, 3))
    assert cost(report.read) == (0, 0)
    assert cost(report.delete) == (2, 3)
    assert cost(lambda: store.claim("report", Stamp(8, "n/l", "holder-8", "read"))) == (0, 0)


@pytest.mark.parametrize("action", ["claim", "write", "delete"])
def test_a_folder_whose_fsync_failed_is_never_taken_as_durable(
    store: FileReceiver, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """After a failed fsync the next one may succeed although the change is lost: the change is made again."""
    store.claim("report", stamp(7)).write(b"one")
    fsync, rename = os.fsync, os.rename
    folders = {store._root.data.fd, store._root.ours.fd}
    broken, renamed = True, 0

    def failing(fd: int) -> None:
        if broken and fd in folders and renamed:
            raise OSError(errno.EIO, "Input/output error")
        fsync(fd)

    def counting(*arguments: str, **options: int) -> None:
        nonlocal renamed
        rename(*arguments, **options)
        renamed += 1

    monkeypatch.setattr(os, "fsync", failing)
    monkeypatch.setattr(os, "rename", counting)
    requests: dict[str, Callable[[], object]] = {
        "claim": lambda: store.claim("report", stamp(8)),
        "write": lambda: store.apply_stamped("report", b"two", stamp(7, 3)),
        "delete": lambda: store.apply_stamped("report", None, stamp(7, 3)),
    }
    with pytest.raises(OutcomeUnknown) as unknown:
        requests[action]()
    assert unknown.value.stamp in (stamp(8), stamp(7, 3))
    # As long as it fails nothing is answered, not even a duplicate or a mark.
    for request in (requests[action], lambda: store.mark("report")):
        with pytest.raises(StoreFailed):
            request()
    broken, before = False, renamed
    requests[action]()
    assert renamed > before
    mark = store.mark("report")
    assert mark is not None
    assert mark.op == (1 if action == "claim" else 3)
    claimed = store.claim("report", stamp(9))
    assert claimed.read() == {"claim": b"one", "write": b"two", "delete": None}[action]


def test_a_file_whose_fsync_failed_is_not_put_in_place(store: FileReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    report = store.claim("report", stamp(7))
    report.write(b"one")
    mark, fsync = store.mark("report"), os.fsync
    folders = {store._root.data.fd, store._root.ours.fd}

    def failing(fd: int) -> None:
        if fd not in folders:
            raise OSError(errno.EIO, "Input/output error")
        fsync(fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        for request in (
            lambda: store.apply_stamped("report", b"two", stamp(7, 3)),
            lambda: store.apply_stamped("report", None, stamp(7, 3)),
            lambda: store.claim("report", stamp(8)),
        ):
            with pytest.raises(StoreFailed, match="Input/output"):
                request()
            assert report.read() == b"one"
            assert store.mark("report") == mark
            assert files_of(store) == {"report", ".zkfence/report.lock", ".zkfence/report.mark"}
    assert not store.apply_stamped("report", b"two", stamp(7, 3)).duplicate


def test_a_rename_that_finds_no_room_leaves_nothing_behind(
    store: FileReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The large file that was to be put in place would keep the disk full."""
    report = store.claim("report", stamp(7))
    report.write(b"one")
    mark = store.mark("report")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", full)
        with pytest.raises(StoreFailed, match="No space left"):
            store.apply_stamped("report", b"two" * 10_000, stamp(7, 3))
    assert files_of(store) == {"report", ".zkfence/report.lock", ".zkfence/report.mark"}
    assert (report.read(), store.mark("report")) == (b"one", mark)
