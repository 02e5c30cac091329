"""FileReceiver through a power loss at any moment, on a model of a disk that keeps only what was fsynced.

A history of requests runs for real, and the system calls that change something are recorded. Then the power goes off
after each of them: names in a folder that was not fsynced since may have changed or not, each for itself and in any
combination; a file that was not fsynced has its old content, its new one, or half of it. Every such disk is laid out
for a receiver to go on from.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from zkfence_receivers import FileReceiver, Stamp, Unfenced, ZkfenceError
from zkfence_receivers._files._root import Keeping
from zkfence_receivers._receiver import Request
from zkfence_receivers.words import Action, Mark

RESOURCE: Final = "report"
FOREIGN: Final = b"foreign"
TAG: Final = "user.zkfence"


def request(action: Action, token: int, op: int, payload: bytes = b"") -> Request:
    return Request(RESOURCE, action, Stamp(token, "n/l", f"holder-{token}", op=op), payload)


HISTORIES: Final = {
    "a life": [
        request(Action.CLAIM, 1, 1),
        request(Action.WRITE, 1, 2, b"first"),
        request(Action.WRITE, 1, 3, b"second"),
        request(Action.CLAIM, 2, 1),
        request(Action.WRITE, 2, 2, b"by the second holder"),
        request(Action.WRITE, 3, 1, b"by a third that never claimed"),
        request(Action.DELETE, 3, 2),
        request(Action.CLAIM, 4, 1),
        request(Action.WRITE, 4, 2, b"after the deletion"),
        request(Action.DELETE, 5, 1),
        request(Action.DELETE, 5, 2),
    ],
    "interruptions": [
        request(Action.CLAIM, 1, 1),
        request(Action.WRITE, 1, 2, b"first"),
        request(Action.WRITE, 1, 3, b"interrupted"),
        request(Action.WRITE, 2, 1, b"by the next holder"),
        request(Action.DELETE, 2, 2),
        request(Action.WRITE, 2, 3, b"after the deletion"),
    ],
    "an adoption": [
        request(Action.ADOPT, 1, 1),
        request(Action.WRITE, 1, 2, b"no longer foreign"),
    ],
}

# Which requests end before they have fsynced the data's folder. Those who look next make good for it, and then rely
# on what they saw.
INTERRUPTED: Final = {"interruptions": {2, 4}}


# What was recorded


@dataclass(frozen=True)
class Create:
    folder: str
    name: str
    inode: int


@dataclass(frozen=True)
class Write:
    inode: int
    content: bytes


@dataclass(frozen=True)
class SetTag:
    inode: int
    tag: bytes


@dataclass(frozen=True)
class Rename:
    folder: str
    name: str
    to: str
    new_name: str


@dataclass(frozen=True)
class Unlink:
    folder: str
    name: str


@dataclass(frozen=True)
class SyncFile:
    inode: int


@dataclass(frozen=True)
class SyncFolder:
    folder: str


@dataclass(frozen=True)
class Sent:
    pass


@dataclass(frozen=True)
class Answered:
    pass


NameChange = Create | Rename | Unlink
Event = NameChange | Write | SetTag | SyncFile | SyncFolder | Sent | Answered


class Recorder:
    """Records what a receiver does to its two folders."""

    def __init__(self, store: FileReceiver) -> None:
        self.events: list[Event] = []
        self._folders = {store._root.data.fd: "data", store._root.ours.fd: "ours"}
        self._inodes: dict[int, int] = {}
        self._numbers = itertools.count(1)

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("open", "write", "setxattr", "rename", "unlink", "fsync"):
            monkeypatch.setattr(os, name, self._recording(getattr(os, name), getattr(self, f"_{name}")))

    @staticmethod
    def _recording(original: Callable[..., Any], record: Callable[..., None]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            result = original(*arguments, **options)
            record(result, *arguments, **options)
            return result

        return call

    def _open(self, fd: int, name: str, flags: int, mode: int = 0, *, dir_fd: int | None = None) -> None:
        self._inodes.pop(fd, None)
        if dir_fd in self._folders and flags & os.O_EXCL:  # lock files are created otherwise; they need not last
            self._inodes[fd] = next(self._numbers)
            self.events.append(Create(self._folders[dir_fd], name, self._inodes[fd]))

    def _write(self, written: int, fd: int, content: bytes) -> None:
        if fd in self._inodes:
            self.events.append(Write(self._inodes[fd], bytes(content[:written])))

    def _setxattr(self, _: None, fd: int, name: str, value: bytes) -> None:
        self.events.append(SetTag(self._inodes[fd], value))

    def _rename(self, _: None, name: str, new_name: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        self.events.append(Rename(self._folders[src_dir_fd], name, self._folders[dst_dir_fd], new_name))

    def _unlink(self, _: None, name: str, *, dir_fd: int) -> None:
        self.events.append(Unlink(self._folders[dir_fd], name))

    def _fsync(self, _: None, fd: int) -> None:
        if fd in self._folders:
            self.events.append(SyncFolder(self._folders[fd]))
        elif fd in self._inodes:
            self.events.append(SyncFile(self._inodes[fd]))


# The disk


@dataclass(frozen=True)
class File:
    content: bytes = b""
    tag: bytes | None = None

    @property
    def half(self) -> File:
        return File(self.content[: len(self.content) // 2], self.tag)


Folders = dict[str, dict[str, int]]
Layout = tuple[tuple[str, str, File], ...]


@dataclass
class Disk:
    """``now``: what processes see. ``safe``: what is on the disk for certain. ``names``: changes of names that are on
    their way, in order; a rename is one change, and belongs to the folder that it leads to."""

    now: dict[int, File] = field(default_factory=dict)
    safe: dict[int, File] = field(default_factory=dict)
    visible: Folders = field(default_factory=lambda: {"data": {}, "ours": {}})
    durable: Folders = field(default_factory=lambda: {"data": {}, "ours": {}})
    pending: list[tuple[NameChange, int]] = field(default_factory=list)

    def apply(self, event: Event) -> None:
        match event:
            case Create(inode=inode):
                self.now[inode] = File()
                self._change(event, inode)
            case Rename(folder=folder, name=name) | Unlink(folder=folder, name=name):
                self._change(event, self.visible[folder][name])
            case Write(inode, content):
                self.now[inode] = File(self.now[inode].content + content, self.now[inode].tag)
            case SetTag(inode, tag):
                self.now[inode] = File(self.now[inode].content, tag)
            case SyncFile(inode):
                self.safe[inode] = self.now[inode]
            case SyncFolder(folder):
                done = [change for change in self.pending if _folder_of(change[0]) == folder]
                self.pending = [change for change in self.pending if _folder_of(change[0]) != folder]
                for change, inode in done:
                    _rename(self.durable, change, inode)

    def _change(self, event: NameChange, inode: int) -> None:
        self.pending.append((event, inode))
        _rename(self.visible, event, inode)

    def after_power_loss(self) -> Iterator[Layout]:
        """Everything that may be there when the power is back."""
        for happened in itertools.product((False, True), repeat=len(self.pending)):
            folders = {folder: dict(names) for folder, names in self.durable.items()}
            for change, inode in itertools.compress(self.pending, happened):
                _rename(folders, change, inode)
            places = [(folder, name, inode) for folder, names in folders.items() for name, inode in names.items()]
            for versions in itertools.product(*(self._versions(inode) for _, _, inode in places)):
                yield tuple(
                    (folder, name, version) for (folder, name, _), version in zip(places, versions, strict=True)
                )

    def _versions(self, inode: int) -> set[File]:
        safe, now = self.safe.get(inode, File()), self.now[inode]
        return {safe} if safe == now else {safe, now, now.half}


def _folder_of(change: NameChange) -> str:
    return change.to if isinstance(change, Rename) else change.folder


def _rename(folders: Folders, change: NameChange, inode: int) -> None:
    match change:
        case Create(folder, name):
            folders[folder][name] = inode
        case Unlink(folder, name):
            folders[folder].pop(name, None)
        case Rename(folder, name, to, new_name):
            if folders[folder].get(name) == inode:
                del folders[folder][name]
            folders[to][new_name] = inode


# The test


@dataclass
class Trial:
    """A history that ran, and the folder that it began with."""

    folder: Path
    keeping: Keeping
    requests: list[Request]
    interrupted: set[int]
    store: FileReceiver = field(init=False)
    states: list[tuple[Mark | None, bytes | None]] = field(init=False)
    deleted: dict[int, File] = field(default_factory=dict)
    events: list[Event] = field(init=False)

    def run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # One receiver for all: it remembers nothing of a resource but what it reads from the files, each time anew.
        self.store = FileReceiver(self.folder, _xattrs=self.keeping is Keeping.XATTR)
        if self.store._root.keeping is not self.keeping:
            pytest.skip("the folder for temporary files has no extended attributes; choose one with --basetemp")
        if self.requests[0].action is Action.ADOPT:
            (self.folder / RESOURCE).write_bytes(FOREIGN)
        with monkeypatch.context() as patch:
            recorder = Recorder(self.store)
            recorder.patch(patch)
            self.states = [self._state()]
            for number, sent in enumerate(self.requests):
                recorder.events.append(Sent())
                data = self.folder / RESOURCE
                if sent.action is Action.DELETE and data.exists():
                    tag = os.getxattr(data, TAG) if TAG in os.listxattr(data) else None
                    self.deleted[number] = File(data.read_bytes(), tag)
                if number in self.interrupted:
                    self._interrupt(sent, monkeypatch)
                    self.states.append(self._state())
                    recorder.events.append(Answered())
                else:
                    self.store._perform(sent)
                    recorder.events.append(Answered())
                    self.states.append(self._state())
        self.events = recorder.events

    def _interrupt(self, sent: Request, monkeypatch: pytest.MonkeyPatch) -> None:
        fsync, folder = os.fsync, self.store._root.data.fd

        def interrupted(fd: int) -> None:
            if fd == folder:
                raise KeyboardInterrupt
            fsync(fd)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", interrupted)
            with pytest.raises(KeyboardInterrupt):
                self.store._perform(sent)

    def broken(self, events: list[Event], since: int = 0) -> Iterator[str]:
        """The promises that a power loss in the course of ``events``, from number ``since`` on, would break."""
        disk, sent, answered = Disk(), 0, 0
        if self.states[0][1] is not None:
            disk.now[0] = disk.safe[0] = File(FOREIGN)
            disk.visible["data"][RESOURCE] = disk.durable["data"][RESOURCE] = 0
        seen: set[tuple[int, int, Layout]] = set()
        for number, event in enumerate(events):
            disk.apply(event)
            sent += isinstance(event, Sent)
            answered += isinstance(event, Answered)
            if number < since:
                continue
            for layout in disk.after_power_loss():
                if (sent, answered, layout) in seen:
                    continue
                seen.add((sent, answered, layout))
                for note in (None, b"*1 host"):  # what a lock file has to say then may be anything
                    try:
                        self._check(layout, sent, answered, note)
                    except (AssertionError, ZkfenceError, pytest.fail.Exception) as error:
                        yield f"after {event}, {answered} of {sent} answered, {layout}: {error}"

    def _check(self, layout: Layout, sent: int, answered: int, note: bytes | None) -> None:
        self._lay_out(layout, note)
        allowed = self.states[answered : sent + 1]
        assert self._content() in [data for _, data in allowed], "what those see who read the file past the receiver"
        if sent > answered:
            allowed = [*allowed, *self._raised_ahead(answered)]
        mark, data = self._state()
        assert (mark, data) in allowed
        acknowledged = self.states[answered][0]
        if data is not None and acknowledged is not None:
            self._lose_the_tag(acknowledged)
        if sent > answered:
            self.store._perform(self.requests[answered])
            assert self._state() == self.states[sent]
        elif answered > 0:
            last = self.requests[answered - 1]
            assert self.store._perform(last).duplicate
            assert self._state() == self.states[answered]
        newest = self.store.claim(RESOURCE, request(Action.CLAIM, 99, 1).stamp)
        newest.write(b"newest")
        assert newest.read() == b"newest"
        if sent == answered > 0 and self.requests[answered - 1].action is Action.DELETE:
            self._find_foreign_data(layout, answered, note)

    def _lay_out(self, layout: Layout, note: bytes | None) -> None:
        ours = self.folder / ".zkfence"
        for old in (self.folder / RESOURCE, *ours.glob(f"{RESOURCE}.*")):
            old.unlink(missing_ok=True)
        for folder, name, file in layout:
            self._put(self.folder / name if folder == "data" else ours / name, file)
        if note is not None:
            (ours / f"{RESOURCE}.lock").write_bytes(note)

    @staticmethod
    def _put(path: Path, file: File) -> None:
        path.write_bytes(file.content)
        if file.tag is not None:
            os.setxattr(path, TAG, file.tag)

    def _lose_the_tag(self, acknowledged: Mark) -> None:
        """By a restore that does not know extended attributes, or somebody who puts another file in its place."""
        path = self.folder / RESOURCE
        if TAG not in os.listxattr(path):
            return
        tag = os.getxattr(path, TAG)
        os.removexattr(path, TAG)
        mark = self.store.mark(RESOURCE)
        assert mark is not None
        assert mark.token >= acknowledged.token
        os.setxattr(path, TAG, tag)

    def _raised_ahead(self, answered: int) -> list[tuple[Mark, bytes | None]]:
        (mark, data), stamp = self.states[answered], self.requests[answered].stamp
        if mark is not None and mark.token == stamp.token:
            return []
        return [(Mark(stamp.token, None if mark is None else mark.written, stamp.lock, stamp.holder), data)]

    def _find_foreign_data(self, layout: Layout, answered: int, note: bytes | None) -> None:
        """Put there after a deletion was answered, and before the power went off: it is not what was deleted, even if
        it is a copy of that."""
        deleted = [file for number, file in self.deleted.items() if number < answered]
        for file in (File(FOREIGN), *deleted):
            self._lay_out(layout, note)
            self._put(self.folder / RESOURCE, file)
            with pytest.raises(Unfenced):
                self.store.claim(RESOURCE, request(Action.CLAIM, 99, 1).stamp)
            assert self._content() == file.content

    def _state(self) -> tuple[Mark | None, bytes | None]:
        return self.store.mark(RESOURCE), self._content()

    def _content(self) -> bytes | None:
        path = self.folder / RESOURCE
        return path.read_bytes() if path.exists() else None


@pytest.fixture(params=list(Keeping))
def keeping(request: pytest.FixtureRequest) -> Keeping:
    return Keeping(request.param)


@pytest.fixture(params=list(HISTORIES))
def trial(
    request: pytest.FixtureRequest, keeping: Keeping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Trial]:
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # it is recorded; the real disk has no part in this
    trial = Trial(tmp_path, keeping, HISTORIES[request.param], INTERRUPTED.get(request.param, set()))
    trial.run(monkeypatch)
    yield trial
    trial.store.close()


def test_what_was_answered_survives_a_power_loss_at_any_moment(trial: Trial) -> None:
    broken = next(trial.broken(trial.events), None)
    assert broken is None, broken


@pytest.mark.parametrize("trial", ["a life"], indirect=True)  # an adoption puts the same content in its own place
def test_every_fsync_is_needed(trial: Trial) -> None:
    """The model's own test, too: with any one fsync left out, some power loss breaks a promise."""
    fsyncs = [number for number, event in enumerate(trial.events) if isinstance(event, SyncFile | SyncFolder)]
    assert len(fsyncs) >= 2 * len(trial.requests)
    for number in fsyncs:
        without = trial.events[:number] + trial.events[number + 1 :]
        assert next(trial.broken(without, since=number), None) is not None, f"{trial.events[number]} is not needed"
