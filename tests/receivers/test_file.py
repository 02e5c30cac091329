"""FileReceiver keeps the contract, with marks in extended attributes and in sidecars."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from zkfence_receivers import (
    FileReceiver,
    InvalidName,
    InvalidToken,
    MarkCorrupt,
    OutOfOrder,
    ReadOnlyStamp,
    Refused,
    StaleToken,
    Stamp,
    StoreFailed,
    TokenCollision,
    Unfenced,
    UnsafeStore,
    WrongLock,
    WrongNamespace,
)
from zkfence_receivers._files._names import Names
from zkfence_receivers._files._root import Keeping
from zkfence_receivers._receiver import Reply, Request
from zkfence_receivers.words import Action, AlreadyApplied, Mark, Mode, Stamps, Verdict, refusal, with_reply

TABLE = json.loads(files("zkfence_receivers").joinpath("admit_vectors.json").read_text(encoding="utf-8"))
NO_ATTRIBUTES = "the folder for temporary files has no extended attributes; choose another one with --basetemp"
LOCK = "0f3c9a1e/reports/7"

Tree = dict[str, tuple[bytes, int, int]]


@pytest.fixture(params=list(Keeping))
def keeping(request: pytest.FixtureRequest) -> Keeping:
    return Keeping(request.param)


@pytest.fixture
def reopen(tmp_path: Path, keeping: Keeping) -> Iterator[Callable[[], FileReceiver]]:
    """Opens the test's store, each time anew."""
    opened: list[FileReceiver] = []

    def open_store() -> FileReceiver:
        receiver = FileReceiver(tmp_path / "store", _xattrs=keeping is Keeping.XATTR)
        opened.append(receiver)
        if keeping is Keeping.XATTR:
            skip_without_attributes(receiver)
        return receiver

    yield open_store
    for receiver in opened:
        receiver.close()


@pytest.fixture
def store(reopen: Callable[[], FileReceiver]) -> FileReceiver:
    return reopen()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def skip_without_attributes(receiver: FileReceiver) -> None:
    if receiver._root.keeping is not Keeping.XATTR:
        pytest.skip(NO_ATTRIBUTES)


def stamp(token: int, op: int | None = 1, **changes: Any) -> Stamp:
    return Stamp(token, **{"lock": LOCK, "holder": f"holder-{token}", "op": op, **changes})


def tree(root: Path) -> Tree:
    """Every file with what would show a change: content, inode, time; the lock files of requests that were refused
    do not count."""
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    }


# The contract


def test_a_claimed_resource_is_read_written_and_deleted(store: FileReceiver, root: Path) -> None:
    report = store.claim("report", stamp(7))
    assert report.read() is None
    report.write(b"one")
    assert report.read() == b"one"
    assert (root / "report").read_bytes() == b"one"
    assert report.delete() is True
    assert not (root / "report").exists()
    assert report.delete() is False
    assert report.read() is None
    report.write(b"")
    assert report.read() == b""


def test_everything_is_there_after_a_restart(reopen: Callable[[], FileReceiver]) -> None:
    first = reopen()
    first.claim("report", stamp(7)).write(b"one")
    mark = first.mark("report")
    first.close()
    second = reopen()
    assert second.mark("report") == mark
    assert mark is not None
    assert (mark.token, mark.written, mark.op) == (7, 7, 2)
    assert second.claim("report", stamp(8)).read() == b"one"


@pytest.fixture(scope="module")
def vector_stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Keeping, FileReceiver]]:
    """One store of each kind for the whole table; each vector has a resource of its own."""
    with (
        FileReceiver(tmp_path_factory.mktemp("xattr")) as tagged,
        FileReceiver(tmp_path_factory.mktemp("sidecar"), _xattrs=False) as journaled,
    ):
        yield {tagged._root.keeping: tagged, Keeping.SIDECAR: journaled}


@pytest.mark.parametrize("vector", TABLE["vectors"], ids=[vector["name"] for vector in TABLE["vectors"]])
def test_it_answers_as_the_table_says(
    vector_stores: dict[Keeping, FileReceiver],
    keeping: Keeping,
    vector: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # hundreds of stores: the rule is tested here, not the disk
    if keeping not in vector_stores:
        pytest.skip(NO_ATTRIBUTES)
    store, resource = vector_stores[keeping], vector["name"]
    before, after = (
        None if vector[key] is None else Mark.from_json(json.dumps(vector[key]), resource) for key in ("mark", "after")
    )
    present = b"old" if vector["data_present"] else None
    arranged = store._files(store._root, resource)
    if before is None and present is not None:
        (Path(store._root.data.path) / Names.of(resource).data).write_bytes(present)
    elif before is not None and present is not None:
        arranged.write(before, present)
    elif before is not None:
        arranged.claim(before)
    action, sent = Action(vector["action"]), Stamp.from_json(json.dumps(vector["stamp"]))
    payload, verdict = vector["payload"].encode(), Verdict(vector["verdict"])
    answer: Reply | Refused | AlreadyApplied
    try:
        answer = store._perform(Request(resource, action, sent, payload))
    except (Refused, AlreadyApplied) as error:
        answer = error
    if verdict is Verdict.DUPLICATE and before is not None and before.reply is None:
        assert isinstance(answer, AlreadyApplied)
    elif verdict in (Verdict.ADMITTED, Verdict.DUPLICATE):
        assert isinstance(answer, Reply)
        assert answer.duplicate is (verdict is Verdict.DUPLICATE)
    else:
        assert isinstance(answer, Refused)
        assert type(answer) is type(refusal(verdict, resource, sent, before))
        assert answer.mark == before
    data = present
    if verdict is Verdict.ADMITTED:
        data = {Action.WRITE: payload, Action.DELETE: None}.get(action, present)
        if action is Action.DELETE:
            assert after is not None
            after = with_reply(after, sent, b"0" if present is None else b"1")
    assert store.mark(resource) == after
    assert store._files(store._root, resource).read() == data


def test_an_older_holder_is_refused_after_the_claim_of_a_newer_one(store: FileReceiver) -> None:
    old = store.claim("report", stamp(7))
    old.write(b"old")
    new = store.claim("report", stamp(8))
    for refused in (lambda: old.write(b"late"), old.delete, lambda: store.claim("report", stamp(7, 9))):
        with pytest.raises(StaleToken) as caught:
            refused()
        assert (caught.value.stamp.token, caught.value.mark and caught.value.mark.token) == (7, 8)
    assert new.read() == b"old"
    new.write(b"new")
    with pytest.raises(StaleToken):
        old.read()
    assert new.read() == b"new"


def test_tokens_are_compared_exactly(store: FileReceiver) -> None:
    tokens = [1, 99, 100, 2**53, 2**53 + 1, 2**62, 2**63 - 1]
    for index, token in enumerate(tokens):
        store.claim("report", stamp(token)).write(str(token).encode())
        for older in tokens[:index]:
            for refused in (
                lambda older=older: store.claim("report", stamp(older, 9)),
                lambda older=older: store.apply_stamped("report", b"x", stamp(older, 9)),
                lambda older=older: store.apply_stamped("report", None, stamp(older, 9)),
            ):
                with pytest.raises(StaleToken):
                    refused()
    mark = store.mark("report")
    assert mark is not None
    assert mark.token == mark.written == tokens[-1]


@pytest.mark.parametrize(
    "wrong", [0, None, -1, 2**63, True, 1.0, "1_0", " 7", "٣", "5a1f8c9e-0000-4000-8000-000000000000"]
)
def test_what_is_no_token_is_refused_before_anything_changes(store: FileReceiver, root: Path, wrong: Any) -> None:
    store.claim("report", stamp(7)).write(b"one")
    before = tree(root)
    with pytest.raises(InvalidToken):
        store.apply_stamped("report", b"two", stamp(wrong))
    with pytest.raises(InvalidToken):
        store.apply_stamped("report", b"two", Stamp.from_json(json.dumps({"v": 1, "token": wrong})))
    with pytest.raises(TypeError):
        store.apply_stamped("report", b"two", wrong)
    assert tree(root) == before
    assert {path.name for path in (root / ".zkfence").glob("*.lock")} == {"+store.lock", "report.lock"}


def test_a_refused_request_writes_nothing(store: FileReceiver, root: Path) -> None:
    store.claim("report", stamp(7)).write(b"one")
    before = tree(root)
    for error, refused in {
        StaleToken: stamp(6, 9),
        TokenCollision: stamp(7, 9, holder="another"),
        OutOfOrder: stamp(7, 2),
        WrongLock: stamp(9, lock="0f3c9a1e/another"),
        WrongNamespace: stamp(9, lock="another/reports/7"),
        ReadOnlyStamp: stamp(9, mode=Mode.READ),
    }.items():
        with pytest.raises(error) as caught:
            store.apply_stamped("report", b"two", refused)
        assert type(caught.value) is error
    assert tree(root) == before


def test_the_same_request_is_applied_once_and_an_earlier_one_not_at_all(store: FileReceiver) -> None:
    store.claim("report", stamp(7))
    first, second, gone = stamp(7, 2), stamp(7, 3), stamp(7, 4)
    assert not store.apply_stamped("report", b"one", first).duplicate
    assert store.apply_stamped("report", b"one", first).duplicate
    store.apply_stamped("report", b"two", second)
    with pytest.raises(OutOfOrder):
        store.apply_stamped("report", b"one", first)
    with pytest.raises(OutOfOrder):
        store.apply_stamped("report", b"another", second)
    assert store.claim("report", stamp(8)).read() == b"two"
    mark_of_8 = store.mark("report")
    with pytest.raises(StaleToken):
        store.apply_stamped("report", None, gone)
    assert store.mark("report") == mark_of_8


def test_a_deletion_is_answered_alike_each_time(store: FileReceiver) -> None:
    store.claim("report", stamp(7)).write(b"one")
    gone, nothing_there = stamp(7, 3), stamp(7, 4)
    assert store.apply_stamped("report", None, gone).existed
    again = store.apply_stamped("report", None, gone)
    assert again.existed
    assert again.duplicate
    assert not store.apply_stamped("report", None, nothing_there).existed
    assert not store.apply_stamped("report", None, nothing_there).existed


def test_requests_without_op_are_kept_apart(reopen: Callable[[], FileReceiver], root: Path) -> None:
    store = reopen()
    foreign = stamp(7, None)
    for payload in (b"one", None, b"two", b"three", None):
        store.apply_stamped("report", payload, foreign)
        store.close()
        store = reopen()
        assert store.claim("report", foreign).read() == payload
        assert (root / "report").exists() is (payload is not None)


class Grant:
    """A grant's counters, as a worker has them."""

    def __init__(self, token: int) -> None:
        self._token = token
        self._stamps: dict[str, Stamps] = {}

    def stamps(self, resource: str) -> Stamps:
        return self._stamps.setdefault(resource, Stamps(stamp(self._token)))


def test_a_second_claim_and_two_handles_of_one_grant_lose_no_write(store: FileReceiver) -> None:
    grant = Grant(7)
    first = store.claim("report", grant)
    first.write(b"one")
    second = store.claim("report", grant)
    second.write(b"two")
    assert first.read() == b"two"
    first.write(b"three")
    assert second.read() == b"three"
    second.write(b"one")
    assert first.read() == b"one"


def test_readers_stop_older_writers_and_not_each_other(store: FileReceiver) -> None:
    store.claim("report", stamp(5)).write(b"five")
    young = store.claim("report", stamp(9, None, mode=Mode.READ))
    old = store.claim("report", stamp(6, None, mode=Mode.READ))
    assert young.read() == old.read() == b"five"
    with pytest.raises(StaleToken):
        store.apply_stamped("report", b"eight", stamp(8))
    store.apply_stamped("report", b"ten", stamp(10))
    with pytest.raises(StaleToken):
        young.read()


# Names


NAMES = [
    "../x", "..", ".", ".x", ".zkfence", "/etc/x", "a/b", "a//b", "a%2Fb", "x", "x.lock", "x.mark", "x.temp", "x.next",
    "x.lock.lock",
    "X", "é", "é", "é", "😀", "\0", "a\nb", "a b", "a+b", "+store", "store", "con", "x.", "-rf", "~",
    "n" * 255, "n" * 254 + "m", "N" * 255, "n" * 240, "n" * 241, "\0" * 255, "\0" * 254 + "\1", "😀" * 63,
]  # fmt: skip


def test_every_name_is_a_resource_of_its_own_within_the_root(
    reopen: Callable[[], FileReceiver], root: Path, tmp_path: Path
) -> None:
    store = reopen()
    names = list(dict.fromkeys(NAMES))
    for index, name in enumerate(names):
        store.claim(name, stamp(index + 1)).write(f"data {index}".encode())
    store.close()
    store = reopen()
    for index, name in enumerate(names):
        mark = store.mark(name)
        assert mark is not None
        assert mark.token == index + 1
        assert store.claim(name, stamp(index + 1, 9)).read() == f"data {index}".encode()
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    visible = [path for path in root.iterdir() if path.name != ".zkfence"]
    assert len(visible) == len(names)
    assert all(path.is_file() and not path.name.startswith(".") for path in visible)


@pytest.mark.parametrize("wrong", ["", "n" * 256, "\ud800", None, 7, b"x"])
def test_what_is_no_name_is_refused(store: FileReceiver, root: Path, wrong: Any) -> None:
    before = tree(root)
    for refused in (
        lambda: store.claim(wrong, stamp(1)),
        lambda: store.adopt(wrong, stamp(1)),
        lambda: store.apply_stamped(wrong, b"x", stamp(1)),
        lambda: store.mark(wrong),
    ):
        with pytest.raises(InvalidName):
            refused()
    assert tree(root) == before


def test_a_mark_that_belongs_to_another_resource_is_not_used(store: FileReceiver, root: Path) -> None:
    store.claim("one", stamp(7)).write(b"one")
    ours = root / ".zkfence"
    (ours / "one.mark").rename(ours / "two.mark")
    with pytest.raises(MarkCorrupt, match="one"):
        store.claim("two", stamp(9))


def test_the_longest_names_fit(store: FileReceiver) -> None:
    long = stamp(7, lock="0f3c9a1e-5a1f-4c9e-8f00-000000000000/" + "\1" * 255)
    store.claim("\0" * 255, long).write(b"one")
    assert store.claim("\0" * 255, stamp(8, lock=long.lock)).read() == b"one"


def test_a_stamp_too_large_for_the_file_system_changes_nothing(tmp_path: Path) -> None:
    with FileReceiver(tmp_path / "store") as store:
        skip_without_attributes(store)
        report = store.claim("report", stamp(7))
        report.write(b"one")
        with pytest.raises(StoreFailed):
            store.apply_stamped("report", b"two", stamp(8, holder="h" * 100_000))
        assert store.claim("report", stamp(9)).read() == b"one"


# Data and marks that are not as they should be


def test_data_that_was_there_before_is_not_touched_until_it_is_adopted(store: FileReceiver, root: Path) -> None:
    (root / "report").write_bytes(b"before")
    for refused in (
        lambda: store.claim("report", stamp(7)),
        lambda: store.apply_stamped("report", b"x", stamp(7)),
        lambda: store.apply_stamped("report", None, stamp(7)),
    ):
        with pytest.raises(Unfenced):
            refused()
    assert (root / "report").read_bytes() == b"before"
    assert store.mark("report") is None
    with (root / "report").open("r+b") as still_open:
        report = store.adopt("report", stamp(7))
        assert report.read() == b"before"
        mark = store.mark("report")
        assert mark is not None
        assert (mark.token, mark.written, mark.op) == (7, None, 1)
        still_open.write(b"bypass")
    assert report.read() == b"before"
    report.write(b"after")
    assert report.read() == b"after"
    with pytest.raises(StaleToken):
        store.adopt("report", stamp(6))


def test_data_that_comes_past_the_receiver_where_there_was_none_is_foreign(store: FileReceiver, root: Path) -> None:
    report = store.claim("report", Grant(7))
    for appears in (report, store.claim("deleted", Grant(7))):
        appears.write(b"ours")
        appears.delete()
        (root / appears.resource).write_bytes(b"foreign")
        for refused in (appears.read, lambda: appears.write(b"x"), appears.delete):  # noqa: B023  # called at once
            with pytest.raises(Unfenced):
                refused()
        with pytest.raises(StaleToken):
            store.adopt(appears.resource, stamp(6))
        assert (root / appears.resource).read_bytes() == b"foreign"
        assert store.adopt(appears.resource, stamp(8)).read() == b"foreign"


def test_deleted_data_that_somebody_brings_back_is_foreign(store: FileReceiver, root: Path, tmp_path: Path) -> None:
    report = store.claim("report", stamp(7))
    report.write(b"one")
    shutil.copy2(root / "report", tmp_path / "backup")  # with its attributes
    report.delete()
    for restored in (report, store.claim("report", stamp(8))):
        shutil.copy2(tmp_path / "backup", root / "report")
        with pytest.raises(Unfenced):
            restored.read()
        assert (root / "report").read_bytes() == b"one"
        (root / "report").unlink()
    shutil.copy2(tmp_path / "backup", root / "report")
    assert store.adopt("report", stamp(9)).read() == b"one"


def test_data_that_lost_its_tag_does_not_lower_the_mark(tmp_path: Path) -> None:
    with FileReceiver(tmp_path / "store") as store:
        skip_without_attributes(store)
        store.apply_stamped("report", b"one", stamp(7))  # no claim went before
        os.removexattr(tmp_path / "store" / "report", "user.zkfence")
        with pytest.raises(StaleToken):
            store.claim("report", stamp(6))
        with pytest.raises(Unfenced):
            store.claim("report", stamp(7, 2))
        mark = store.mark("report")
        assert mark is not None
        assert mark.token == 7
        assert store.adopt("report", stamp(7, 3)).read() == b"one"


def test_data_alone_still_has_its_mark(tmp_path: Path) -> None:
    with FileReceiver(tmp_path / "store") as store:
        skip_without_attributes(store)
        store.claim("report", stamp(7)).write(b"one")
    shutil.rmtree(tmp_path / "store" / ".zkfence")
    with FileReceiver(tmp_path / "store") as store:
        with pytest.raises(StaleToken):
            store.claim("report", stamp(6))
        with pytest.raises(OutOfOrder):
            store.claim("report", stamp(7, 1))
        store.apply_stamped("report", b"two", stamp(7, 3))
        (tmp_path / "store" / "report").unlink()
        assert store.apply_stamped("report", b"one", stamp(7, 2)).duplicate  # the sidecar was made anew with this op


def test_another_resources_data_is_foreign_even_with_its_tag(tmp_path: Path) -> None:
    with FileReceiver(tmp_path / "store") as store:
        skip_without_attributes(store)
        store.claim("one", stamp(7)).write(b"one")
        shutil.copy2(tmp_path / "store" / "one", tmp_path / "store" / "two")
        with pytest.raises(Unfenced):
            store.claim("two", stamp(9))
        assert store.mark("two") is None


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"null", b"7", b'{"v":1}', b"\xff\xfe", b"[" * 100_000, b'{"v":2,"resource":"report"}'],
    ids=["empty", "half", "list", "null", "number", "incomplete", "binary", "deep", "newer"],
)
def test_an_unreadable_mark_stops_everything(store: FileReceiver, root: Path, raw: bytes) -> None:
    report = store.claim("report", stamp(7))
    report.write(b"one")
    (root / ".zkfence" / "report.mark").write_bytes(raw)
    for refused in (
        report.read,
        lambda: report.write(b"two"),
        lambda: store.mark("report"),
        lambda: store.claim("report", stamp(9)),
        lambda: store.adopt("report", stamp(9)),
    ):
        with pytest.raises(MarkCorrupt):
            refused()
    assert (root / "report").read_bytes() == b"one"


@pytest.mark.parametrize(
    "change",
    [
        {"revision": 0}, {"revision": "7"}, {"revision": True}, {"floor": -1}, {"floor": None}, {"content": "there"},
        {"digest": 7}, {"resource": 7}, {"mark": None}, {"more": 1}, {"v": "1"},
    ],
    ids=str,
)  # fmt: skip
def test_a_mark_with_a_field_that_cannot_be_is_unreadable(
    store: FileReceiver, root: Path, change: dict[str, object]
) -> None:
    store.claim("report", stamp(7))
    sidecar = root / ".zkfence" / "report.mark"
    own, mark = sidecar.read_text().splitlines()
    sidecar.write_text(f"{json.dumps(json.loads(own) | change)}\n{mark}\n")
    with pytest.raises(MarkCorrupt):
        store.claim("report", stamp(9))


def test_an_unreadable_tag_stops_everything(tmp_path: Path) -> None:
    with FileReceiver(tmp_path / "store") as store:
        skip_without_attributes(store)
        store.claim("report", stamp(7)).write(b"one")
        os.setxattr(tmp_path / "store" / "report", "user.zkfence", b"{}")
        with pytest.raises(MarkCorrupt):
            store.claim("report", stamp(9))


# The store


def test_asking_for_a_mark_leaves_nothing_behind(store: FileReceiver, root: Path) -> None:
    before = sorted(root.rglob("*"))
    assert store.mark("unknown") is None
    assert sorted(root.rglob("*")) == before


def test_everything_is_private_unless_the_data_is_to_be_seen(tmp_path: Path, keeping: Keeping) -> None:
    def modes(root: Path) -> dict[str, int]:
        return {str(path.relative_to(root)): stat.S_IMODE(path.stat().st_mode) for path in [root, *root.rglob("*")]}

    umask = os.umask(0)
    try:
        for file_mode in (0o600, 0o644):
            root = tmp_path / f"{file_mode:o}"
            with FileReceiver(root, file_mode=file_mode, _xattrs=keeping is Keeping.XATTR) as store:
                store.claim("report", stamp(7)).write(b"one")
            ours = {f".zkfence/{name}": 0o600 for name in ("+store.lock", "+store.mark", "report.lock", "report.mark")}
            assert modes(root) == {".": 0o700, ".zkfence": 0o700, "report": file_mode, **ours}
    finally:
        os.umask(umask)


def test_a_store_keeps_to_what_it_was_made_with(tmp_path: Path) -> None:
    with FileReceiver(tmp_path / "sidecars", _xattrs=False) as store:
        store.claim("report", stamp(7)).write(b"one")
    with FileReceiver(tmp_path / "sidecars") as store:
        assert store.claim("report", stamp(8)).read() == b"one"
        assert store._root.keeping is Keeping.SIDECAR


def test_a_store_that_lost_its_attributes_in_a_copy_is_refused(tmp_path: Path) -> None:
    with FileReceiver(tmp_path / "store") as store:
        skip_without_attributes(store)
        store.claim("report", stamp(7)).write(b"one")
    shutil.copytree(tmp_path / "store", tmp_path / "whole")
    shutil.copytree(tmp_path / "store", tmp_path / "bare", copy_function=shutil.copyfile)
    with FileReceiver(tmp_path / "whole") as store:
        assert store.claim("report", stamp(8)).read() == b"one"
    with pytest.raises(UnsafeStore, match="extended attribute"):
        FileReceiver(tmp_path / "bare")
    with pytest.raises(UnsafeStore, match="extended attribute"):
        FileReceiver(tmp_path / "store", _xattrs=False)


def test_folders_that_cannot_be_a_store_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsafeStore, match="no/such does not exist; make it first"):
        FileReceiver(tmp_path / "no" / "such" / "folder")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UnsafeStore, match="Not a directory"):
        FileReceiver(tmp_path / "file")
    with pytest.raises(UnsafeStore):
        FileReceiver("/proc/self/fd")


def test_a_store_others_can_write_into_is_refused(tmp_path: Path) -> None:
    FileReceiver(tmp_path).close()
    (tmp_path / ".zkfence").chmod(0o777)
    with pytest.raises(UnsafeStore, match="others may write"):
        FileReceiver(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b'{"v":2,"keeping":"xattr"}', b'{"v":1,"keeping":"else"}', b"[]"])
def test_a_store_of_another_format_is_refused(tmp_path: Path, content: bytes) -> None:
    FileReceiver(tmp_path).close()
    (tmp_path / ".zkfence" / "+store.mark").write_bytes(content)
    with pytest.raises(UnsafeStore):
        FileReceiver(tmp_path)


def test_a_file_system_without_what_is_needed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probes, each against a file system that lacks one thing; the calls are real but for that."""
    root = tmp_path / "store"
    FileReceiver(root).close()
    status = os.stat

    def insensitive(path: Any, **options: Any) -> os.stat_result:
        return status(path.lower() if path == ".ZKFENCE" else path, **options)

    def no_folder_sync(fd: int) -> None:
        raise OSError(22, "Invalid argument")

    for target, name, replacement, reason in (
        (os, "stat", insensitive, "upper from lower"),
        (os, "fsync", no_folder_sync, "fsync"),
        (fcntl, "flock", lambda fd, flags: None, "flock has no effect"),
        (os, "fpathconf", lambda fd, name: 143, "file names of 255 bytes"),
        (os, "access", lambda *_, **__: False, "not writable"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(target, name, replacement)
            with pytest.raises(UnsafeStore, match=reason):
                FileReceiver(root)
    FileReceiver(root).close()


def test_sidecars_are_used_where_there_are_no_attributes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "setxattr", refuse)
    with FileReceiver(tmp_path / "store") as store:
        assert store._root.keeping is Keeping.SIDECAR
        store.claim("report", stamp(7)).write(b"one")
    assert {path.name for path in (tmp_path / "store" / ".zkfence").glob("+*")} == {"+store.lock", "+store.mark"}


def test_a_root_behind_a_link_is_resolved_once(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "link").symlink_to("one")
    with FileReceiver(str(tmp_path / "link")) as store:
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to("two")
        store.claim("report", stamp(7)).write(b"one")
    assert (tmp_path / "one" / "report").read_bytes() == b"one"
    assert list((tmp_path / "two").iterdir()) == []


@pytest.mark.parametrize(
    "options", [{"lock_timeout": -1}, {"lock_timeout": float("nan")}, {"file_mode": 0o4600}, {"file_mode": 0}]
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"lock_timeout|file_mode"):
        FileReceiver(tmp_path, **options)


def test_no_descriptor_is_left_open(reopen: Callable[[], FileReceiver], root: Path) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = open_files()
    store = reopen()
    assert open_files() == before + 2
    (root / "foreign").write_bytes(b"x")
    (root / "folder").mkdir()
    report = store.claim("report", stamp(7))
    for error, request in (
        (None, lambda: report.write(b"x")),
        (None, report.read),
        (None, report.delete),
        (StaleToken, lambda: store.claim("report", stamp(6))),
        (Unfenced, lambda: store.claim("foreign", stamp(6))),
        (UnsafeStore, lambda: store.claim("folder", stamp(6))),
        (None, lambda: store.mark("unknown")),
    ):
        if error is None:
            request()
        else:
            with pytest.raises(error):
                request()
    assert store._locks._mutexes._users == {}
    assert open_files() == before + 2
    store.close()
    store.close()
    assert open_files() == before
    with pytest.raises(StoreFailed):
        store.claim("report", stamp(9))
    with pytest.raises(UnsafeStore):
        FileReceiver(root / "folder" / "no" / "such")
    FileReceiver(root / "folder")
    gc.collect()
    assert open_files() == before
