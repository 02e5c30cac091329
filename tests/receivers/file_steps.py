"""Interrupts every kind of request of FileReceiver at each of its system calls, and looks at what is left.

``file_steps.py kill|fail xattr|sidecar``. *kill*: a forked process kills itself, with SIGKILL, before the n-th call
that changes something, and in the middle of a write. *fail*: the n-th call raises an OSError, once without having done
its work and once after it. Ends with an error at the first request that is neither not done nor done, and prints the
number of interruptions.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from zkfence_receivers import FileReceiver, OutcomeUnknown, Stamp, StoreFailed
from zkfence_receivers._files._directory import ATTRIBUTE
from zkfence_receivers._files._root import Keeping
from zkfence_receivers._receiver import Request
from zkfence_receivers.words import Action, Mark

CHANGES: Final = ("open", "pwrite", "write", "setxattr", "fchmod", "fsync", "rename", "unlink")
CALLS: Final = (*CHANGES, "close", "stat", "fstat", "pread", "getxattr")
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


@dataclass(frozen=True)
class Killed:
    """A request whose process was killed before its n-th call of this name: the next one has to clear up."""

    request: Request
    name: str
    number: int


FOREIGN: Final = b"foreign" * 1000
WRITE: Final = request(Action.WRITE, stamp(1, 5), NEW)
NEWER_WRITE: Final = request(Action.WRITE, stamp(2, 1), NEW)
DELETION: Final = request(Action.DELETE, stamp(1, 5))

# What went before, and the request that is interrupted. Bytes are foreign data.
CASES: Final[dict[str, tuple[Sequence[Request | Killed | bytes], Request]]] = {
    "first claim": ([], request(Action.CLAIM, stamp(2, 1))),
    "first write": ([], NEWER_WRITE),
    "newer claim": (WRITTEN, request(Action.CLAIM, stamp(2, 1))),
    "claim again": (WRITTEN, request(Action.CLAIM, stamp(1, 5))),
    "claim after deletion": (DELETED, request(Action.CLAIM, stamp(2, 1))),
    "write after claim": (CLAIMED, WRITE),
    "write again": (WRITTEN, WRITE),
    "write the same again": (WRITTEN, request(Action.WRITE, stamp(1, 5), b"old" * 2000)),
    "newer write without claim": (WRITTEN, NEWER_WRITE),
    "write after deletion": (DELETED, WRITE),
    "deletion": (WRITTEN, DELETION),
    "newer deletion": (WRITTEN, request(Action.DELETE, stamp(2, 1))),
    "deletion of nothing": (DELETED, DELETION),
    "adoption": ([FOREIGN], request(Action.ADOPT, stamp(2, 1))),
    "read": (WRITTEN, request(Action.READ, stamp(1, None))),
    "write after a write that was not committed": ([*WRITTEN, Killed(WRITE, "rename", 1)], NEWER_WRITE),
    "write after a write that was killed late": ([*WRITTEN, Killed(WRITE, "fsync", 2)], NEWER_WRITE),
    "claim after a write that was killed later": (
        [*WRITTEN, Killed(NEWER_WRITE, "fsync", 4)],
        request(Action.CLAIM, stamp(3, 1)),
    ),
    "write after a deletion that was killed": ([*WRITTEN, Killed(DELETION, "unlink", 1)], NEWER_WRITE),
    "read after a deletion that was killed": (
        [*WRITTEN, Killed(DELETION, "unlink", 1)],
        request(Action.READ, stamp(1, None)),
    ),
}


Interrupt = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class Calls:
    """Counts the system calls of these names that a request makes, and interrupts one of them."""

    def __init__(self, at: int, interrupt: Interrupt, names: Sequence[str]) -> None:
        self.left = at
        self.name = ""
        self._interrupt = interrupt
        self._names = names

    @contextmanager
    def watched(self) -> Iterator[None]:
        originals = {name: getattr(os, name) for name in self._names}
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


def kill_self(original: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    if original.__name__ == "write":
        fd, content = arguments
        original(fd, content[: len(content) // 2])
    os.kill(os.getpid(), signal.SIGKILL)


def perform_in_child(store: FileReceiver, sent: Request, calls: Calls) -> bool:
    """Whether it was done before the call at which the child kills itself."""
    child = os.fork()
    if child == 0:
        with calls.watched():
            store._perform(sent)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), status
    return status == 0


class Bench:
    """One case: its files before the request, and the states before and after."""

    def __init__(self, store: FileReceiver, name: str) -> None:
        history, self.request = CASES[name]
        self.store = store
        self._root, self._ours = Path(store._root.data.path), Path(store._root.ours.path)
        self._files: dict[Path, tuple[bytes, bytes | None]] = {}
        self.restore()
        for earlier in history:
            if isinstance(earlier, bytes):
                (self._root / RESOURCE).write_bytes(earlier)
            elif isinstance(earlier, Request):
                store._perform(earlier)
            else:
                done = perform_in_child(store, earlier.request, Calls(earlier.number, kill_self, [earlier.name]))
                # With attributes some requests have fewer calls; to clear up after nothing is a case as well.
                assert not done or store._root.keeping is Keeping.XATTR
        for path in self._paths():
            tag = os.getxattr(path, ATTRIBUTE) if ATTRIBUTE in os.listxattr(path) else None
            self._files[path] = path.read_bytes(), tag
        self.before = self.state()
        self.reply = store._perform(self.request)
        self.after = self.state()

    def _paths(self) -> list[Path]:
        return [*self._root.glob(f"{RESOURCE}*"), *self._ours.glob(f"{RESOURCE}*")]

    def restore(self) -> None:
        """The files as they were before the request."""
        for path in self._paths():
            path.unlink()
        for path, (content, tag) in self._files.items():
            path.write_bytes(content)
            if tag is not None:
                os.setxattr(path, ATTRIBUTE, tag)

    def state(self) -> State:
        mark, path = self.store.mark(RESOURCE), self._root / RESOURCE
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

    def check(self, allowed: list[State]) -> None:
        found = self.state()
        assert found in allowed, f"{found} is none of {allowed}"
        again = self.store._perform(self.request)
        assert self.state() == self.after, "sent again, it was not applied"
        if self.request.action is Action.DELETE:
            assert again.existed == self.reply.existed
        if self.request.action is not Action.READ and found == self.after:
            assert again.duplicate, "it was applied twice"
        newest = self.store.claim(RESOURCE, stamp(9, 1))
        newest.write(b"newest")
        assert newest.read() == b"newest"
        names = sorted(path.name for path in self._paths())
        assert names == [RESOURCE, f"{RESOURCE}.lock", f"{RESOURCE}.mark"], names


def kill(bench: Bench) -> int:
    at = 0
    while True:
        at += 1
        bench.restore()
        done = perform_in_child(bench.store, bench.request, Calls(at, kill_self, CHANGES))
        bench.check([bench.after] if done else [*bench.not_done, bench.after])
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

    return fail_each(bench, fails, CALLS) + fail_each(bench, fails_after, CHANGES)


def fail_each(bench: Bench, interrupt: Interrupt, names: Sequence[str]) -> int:
    at = 0
    while True:
        at += 1
        bench.restore()
        calls = Calls(at, interrupt, names)
        descriptors = os.listdir("/proc/self/fd")  # noqa: PTH208  # the names will do
        try:
            with calls.watched():
                bench.store._perform(bench.request)
            allowed = [bench.after]
        except StoreFailed:
            allowed = bench.not_done
        except OutcomeUnknown as unknown:
            assert unknown.stamp == bench.request.stamp  # noqa: PT017  # this is no test function
            allowed = [*bench.not_done, bench.after]
        try:
            assert os.listdir("/proc/self/fd") == descriptors, "a descriptor leaks"  # noqa: PTH208
            bench.check(allowed)
        except AssertionError as error:
            raise AssertionError(f"call {at}, {calls.name}, {interrupt.__name__}: {error}") from error
        if calls.left > 0:
            return at - 1


def quick_folder(keeping: Keeping) -> str | None:
    """A folder in memory, if there is one that can be such a store: thousands of small files are made here."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        return None
    with tempfile.TemporaryDirectory(dir=memory) as probe, FileReceiver(probe) as store:
        return str(memory) if keeping in (Keeping.SIDECAR, store._root.keeping) else None


def main(how: str, keeping: str) -> None:
    os.fsync = lambda fd: None  # the machine stays up here
    sweep, kind, interruptions = {"kill": kill, "fail": fail}[how], Keeping(keeping), 0
    with (
        tempfile.TemporaryDirectory(dir=quick_folder(kind)) as folder,
        FileReceiver(folder, _xattrs=kind is Keeping.XATTR) as store,
    ):
        assert store._root.keeping is kind, "this needs a folder for temporary files with extended attributes"
        for name in CASES:
            try:
                interruptions += sweep(Bench(store, name))
            except BaseException as error:
                raise AssertionError(f"{how} {keeping} {name!r}: {error}") from error
    print(interruptions)


if __name__ == "__main__":
    main(*sys.argv[1:])
