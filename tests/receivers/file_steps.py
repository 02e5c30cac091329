"""Interrupts every kind of request of FileReceiver at each of its system calls, and looks at what is left.

``file_steps.py kill|fail xattr|sidecar``. *kill*: a forked process kills itself, with SIGKILL, before the n-th call,
and in the middle of a write. *fail*: the n-th call raises an OSError, once without having done its work and once after
it. Ends with an error at the first request that is neither not done nor done, and prints the number of interruptions.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from zkfence_receivers import FileReceiver, OutcomeUnknown, Stamp, StoreFailed
from zkfence_receivers._files._root import Keeping
from zkfence_receivers._receiver import Request
from zkfence_receivers.words import Action, Mark

CALLS: Final = (
    "open", "close", "stat", "fstat", "pread", "pwrite", "write", "getxattr", "setxattr", "fchmod", "fsync", "rename",
    "unlink",
)  # fmt: skip
RESOURCE: Final = "report"
LOCK: Final = "0f3c9a1e/reports/7"

State = tuple[Mark | None, bytes | None]


def stamp(token: int, op: int | None) -> Stamp:
    return Stamp(token, LOCK, f"holder-{token}", op=op)


def request(action: Action, sent: Stamp, payload: bytes = b"") -> Request:
    return Request(RESOURCE, action, sent, payload)


CLAIMED: Final = [request(Action.CLAIM, stamp(1, 1))]
WRITTEN: Final = [*CLAIMED, request(Action.WRITE, stamp(1, 2), b"old" * 2000)]
DELETED: Final = [*WRITTEN, request(Action.DELETE, stamp(1, 3))]
NEW: Final = b"new" * 3000

# What went before, whether there is foreign data, and the request that is interrupted.
CASES: Final[dict[str, tuple[list[Request], bool, Request]]] = {
    "first claim": ([], False, request(Action.CLAIM, stamp(2, 1))),
    "first write": ([], False, request(Action.WRITE, stamp(2, 1), NEW)),
    "newer claim": (WRITTEN, False, request(Action.CLAIM, stamp(2, 1))),
    "claim again": (WRITTEN, False, request(Action.CLAIM, stamp(1, 5))),
    "claim after deletion": (DELETED, False, request(Action.CLAIM, stamp(2, 1))),
    "write after claim": (CLAIMED, False, request(Action.WRITE, stamp(1, 5), NEW)),
    "write again": (WRITTEN, False, request(Action.WRITE, stamp(1, 5), NEW)),
    "write the same again": (WRITTEN, False, request(Action.WRITE, stamp(1, 5), b"old" * 2000)),
    "newer write without claim": (WRITTEN, False, request(Action.WRITE, stamp(2, 1), NEW)),
    "write after deletion": (DELETED, False, request(Action.WRITE, stamp(1, 5), NEW)),
    "deletion": (WRITTEN, False, request(Action.DELETE, stamp(1, 5))),
    "newer deletion": (WRITTEN, False, request(Action.DELETE, stamp(2, 1))),
    "deletion of nothing": (DELETED, False, request(Action.DELETE, stamp(1, 5))),
    "adoption": ([], True, request(Action.ADOPT, stamp(2, 1))),
    "read": (WRITTEN, False, request(Action.READ, stamp(1, None))),
}


class Calls:
    """Counts the system calls that a request makes, and interrupts one of them."""

    def __init__(
        self, at: int, interrupt: Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
    ) -> None:
        self.left = at
        self.name = ""
        self._interrupt = interrupt

    @contextmanager
    def watched(self) -> Iterator[None]:
        originals = {name: getattr(os, name) for name in CALLS}
        for name, original in originals.items():
            setattr(os, name, self._watch(name, original))
        try:
            yield
        finally:
            for name, original in originals.items():
                setattr(os, name, original)

    def _watch(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                self.name = name
                return self._interrupt(original, arguments, options)
            return original(*arguments, **options)

        return call


@dataclass
class Bench:
    """One case: the folder as it is before the request, and the states before and after."""

    folder: Path
    keeping: Keeping
    name: str

    def __post_init__(self) -> None:
        history, foreign, self.request = CASES[self.name]
        self.template, self.work = self.folder / "template", self.folder / "work"
        with self.open(self.template) as store:
            for earlier in history:
                store._perform(earlier)
        if foreign:
            (self.template / RESOURCE).write_bytes(b"foreign" * 1000)
        self.fresh()
        with self.open(self.work) as store:
            self.before = self.state(store)
            self.reply = store._perform(self.request)
            self.after = self.state(store)

    def open(self, folder: Path) -> FileReceiver:
        store = FileReceiver(folder, _xattrs=self.keeping is Keeping.XATTR)
        assert store._root.keeping is self.keeping, "this needs a folder for temporary files with extended attributes"
        return store

    def fresh(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.template, self.work)

    def state(self, store: FileReceiver) -> State:
        path = Path(store._root.data.path) / RESOURCE
        mark = store.mark(RESOURCE)
        return mark, path.read_bytes() if path.exists() else None

    @property
    def not_done(self) -> list[State]:
        """The state before; a token that was raised ahead is allowed, an op without its data is not."""
        mark, data = self.before
        sent = self.request.stamp
        if mark is not None and mark.token == sent.token:
            return [self.before]
        written = None if mark is None else mark.written
        return [self.before, (Mark(sent.token, written, sent.lock, sent.holder), data)]

    def check(self, store: FileReceiver, allowed: list[State]) -> None:
        found = self.state(store)
        assert found in allowed, f"{found} is none of {allowed}"
        again = store._perform(self.request)
        assert self.state(store) == self.after, "sent again, it was not applied"
        if self.request.action is Action.DELETE:
            assert again.existed == self.reply.existed
        if self.request.action is not Action.READ and found == self.after:
            assert again.duplicate, "it was applied twice"
        newest = store.claim(RESOURCE, stamp(9, 1))
        newest.write(b"newest")
        assert newest.read() == b"newest"
        files = {str(path.relative_to(self.work)) for path in self.work.rglob("*") if path.is_file()}
        ours = {f".zkfence/{name}" for name in ("+store.lock", "+store.mark", f"{RESOURCE}.lock", f"{RESOURCE}.mark")}
        assert files == ours | {RESOURCE}, files


def kill(bench: Bench) -> int:
    def killed(original: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        if original.__name__ == "write":
            fd, content = arguments
            original(fd, content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    at = 0
    while True:
        at += 1
        bench.fresh()
        with bench.open(bench.work) as store:
            child = os.fork()
            if child == 0:
                with Calls(at, killed).watched():
                    store._perform(bench.request)
                os._exit(0)
            status = os.waitpid(child, 0)[1]
            assert status in (0, signal.SIGKILL), status
            done = status == 0
            bench.check(store, [bench.after] if done else [*bench.not_done, bench.after])
        if done:
            return at - 1


def fail(bench: Bench) -> int:
    def fails(original: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        if original.__name__ == "close":
            original(*arguments)
        raise OSError(5, "Input/output error")

    def fails_after(original: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        result = original(*arguments, **options)
        if original.__name__ == "open":
            os.close(result)
        raise OSError(5, "Input/output error")

    interruptions = 0
    for interrupt in (fails, fails_after):
        at = 0
        while True:
            at += 1
            bench.fresh()
            calls = Calls(at, interrupt)
            with bench.open(bench.work) as store:
                descriptors = len(list(Path("/proc/self/fd").iterdir()))
                try:
                    with calls.watched():
                        store._perform(bench.request)
                    allowed = [bench.after]
                except StoreFailed:
                    allowed = bench.not_done
                except OutcomeUnknown as unknown:
                    assert unknown.stamp == bench.request.stamp  # noqa: PT017  # this is no test function
                    allowed = [*bench.not_done, bench.after]
                assert len(list(Path("/proc/self/fd").iterdir())) == descriptors, f"a descriptor leaks: {calls.name}"
                try:
                    bench.check(store, allowed)
                except AssertionError as error:
                    raise AssertionError(f"call {at}, {calls.name}, {interrupt.__name__}: {error}") from error
            if calls.left > 0:
                break
            interruptions += 1
    return interruptions


def quick_folder(keeping: Keeping) -> str | None:
    """A folder in memory, if there is one that can be such a store: thousands of small files are made here."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        return None
    with tempfile.TemporaryDirectory(dir=memory) as probe, FileReceiver(probe) as store:
        return str(memory) if keeping in (Keeping.SIDECAR, store._root.keeping) else None


def main(how: str, keeping: str) -> None:
    os.fsync = lambda fd: None  # the machine stays up here
    sweep = {"kill": kill, "fail": fail}[how]
    interruptions = 0
    with tempfile.TemporaryDirectory(dir=quick_folder(Keeping(keeping))) as folder:
        for name in CASES:
            case_folder = Path(folder) / name
            case_folder.mkdir()
            bench = Bench(case_folder, Keeping(keeping), name)
            try:
                interruptions += sweep(bench)
            except BaseException as error:
                raise AssertionError(f"{how} {keeping} {name!r}: {error}") from error
    print(interruptions)


if __name__ == "__main__":
    main(*sys.argv[1:])
