"""Links, folders and pipes planted where FileReceiver's files go: refused, and the victim stays as it was."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zkfence_receivers import FileReceiver, Stamp, UnsafeStore
from zkfence_receivers._files._root import Keeping

VICTIM = b"the victim's content, longer than anything that is written in these tests " * 10


@pytest.fixture(params=list(Keeping))
def keeping(request: pytest.FixtureRequest) -> Keeping:
    return Keeping(request.param)


@pytest.fixture
def store(tmp_path: Path, keeping: Keeping) -> Iterator[FileReceiver]:
    with FileReceiver(tmp_path / "store", lock_timeout=5, _xattrs=keeping is Keeping.XATTR) as receiver:
        yield receiver


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_bytes(VICTIM)
    return path


def place_of(store: FileReceiver, which: str) -> Path:
    root = Path(store._root.data.path)
    return root / "report" if which == "data" else root / ".zkfence" / f"report.{which}"


def symbolic_link(place: Path, victim: Path) -> None:
    place.symlink_to(victim)


def dangling_link(place: Path, victim: Path) -> None:
    place.symlink_to(victim.with_name("not there yet"))


def folder(place: Path, victim: Path) -> None:
    place.mkdir()


def pipe(place: Path, victim: Path) -> None:
    os.mkfifo(place)


PLANTS = [symbolic_link, dangling_link, folder, pipe]
FILES = [(keeping, which) for keeping in Keeping for which in ("data", "lock", "mark", "temp")]
FILES.append((Keeping.SIDECAR, "next"))


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize(("keeping", "which"), FILES, indirect=["keeping"])
def test_what_is_planted_is_refused_and_left_alone(
    store: FileReceiver,
    victim: Path,
    which: str,
    plant: Callable[[Path, Path], None],
) -> None:
    report = store.claim("report", Stamp(7, op=1))
    report.write(b"one")
    mark = store.mark("report")
    place = place_of(store, which)
    kept = place.rename(place.with_name("kept")) if place.exists() else None
    plant(place, victim)
    for refused in (lambda: report.write(b"two"), report.delete, lambda: store.claim("report", Stamp(8, op=1))):
        with pytest.raises(UnsafeStore, match="no plain file; find out who put it there"):
            refused()
    assert victim.read_bytes() == VICTIM
    assert sorted(path.name for path in victim.parent.iterdir()) == ["store", "victim"]
    assert place.is_symlink() or place.is_dir() or place.is_fifo()
    # Nothing was half done: with the plant gone, everything is as it was.
    if place.is_dir() and not place.is_symlink():
        place.rmdir()
    else:
        place.unlink()
    if kept is not None:
        kept.rename(place)
    assert store.mark("report") == mark
    assert report.read() == b"one"
    report.write(b"three")
    assert report.read() == b"three"


@pytest.mark.parametrize("plant", PLANTS)
def test_a_first_claim_does_not_follow_what_is_planted(
    store: FileReceiver, victim: Path, plant: Callable[[Path, Path], None]
) -> None:
    for which in ("lock", "data", "mark", "temp"):  # the lock first: it is there after the first attempt
        place = place_of(store, which)
        plant(place, victim)
        with pytest.raises(UnsafeStore):
            store.claim("report", Stamp(7, op=1))
        if place.is_dir() and not place.is_symlink():
            place.rmdir()
        else:
            place.unlink()
    assert victim.read_bytes() == VICTIM
    assert store.claim("report", Stamp(7, op=1)).read() is None


@pytest.mark.parametrize(("keeping", "which"), FILES, indirect=["keeping"])
def test_a_second_name_of_the_victim_does_it_no_harm(store: FileReceiver, victim: Path, which: str) -> None:
    report = store.claim("report", Stamp(7, op=1))
    report.write(b"one")
    if which == "lock":
        place_of(store, which).unlink()
        os.link(victim, place_of(store, which))
        with pytest.raises(UnsafeStore, match="second name"):  # whoever holds a lock writes into its file
            report.write(b"two")
        assert victim.read_bytes() == VICTIM
    elif which in ("temp", "next"):
        os.link(victim, place_of(store, which))
        report.write(b"two")
        assert report.read() == b"two"
        report.delete()
        assert victim.read_bytes() == VICTIM
        assert os.listxattr(victim) == []
    else:
        inode = place_of(store, which).stat().st_ino
        second_name = victim.with_name("second name")
        os.link(place_of(store, which), second_name)
        before = second_name.read_bytes()
        report.write(b"two")
        store.claim("report", Stamp(8, op=1))
        assert second_name.read_bytes() == before
        assert second_name.stat().st_ino == inode


def test_a_linked_folder_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / ".zkfence").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeStore):
        FileReceiver(tmp_path / "store")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_links_planted_for_the_stores_own_files_are_refused(tmp_path: Path, victim: Path) -> None:
    for name in ("+store.lock", "+store.mark", "+store.temp"):
        root = tmp_path / name
        (root / ".zkfence").mkdir(parents=True)
        (root / ".zkfence" / name).symlink_to(victim)
        with pytest.raises(UnsafeStore):
            FileReceiver(root)
        assert victim.read_bytes() == VICTIM
