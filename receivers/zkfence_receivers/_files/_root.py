"""Root: a file store's two folders, and whether the file system can keep the promise."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from ..words import UnsafeStore
from ._directory import ATTRIBUTE, PRIVATE_FOLDER, Directory
from ._lock import Locks
from ._names import MAX_COMPONENT, Names

FORMAT: Final = 1
OURS: Final = ".zkfence"

_STORE: Final = Names.with_stem("+store")  # no resource has such a name
_LARGE_TAG: Final = b"x" * 3072
_OTHERS_WRITE: Final = 0o022
_NO_ATTRIBUTES: Final = frozenset({errno.ENOTSUP, errno.E2BIG, errno.ERANGE})


class Keeping(StrEnum):
    """Where the records of writes are kept, for the whole life of a store."""

    XATTR = "xattr"  # with the data, as an extended attribute
    SIDECAR = "sidecar"  # beside it, where the file system has no such attributes


@dataclass(frozen=True, slots=True)
class Root:
    """``data`` holds the users' bytes and nothing else, ``ours`` everything else."""

    data: Directory
    ours: Directory
    keeping: Keeping
    file_mode: int

    @classmethod
    def open(cls, path: Path, *, file_mode: int, lock_timeout: float, xattrs: bool) -> Self:
        """Open a store, or make a new one; raises `UnsafeStore`, and `StoreBusy` where others keep it locked."""
        opened: list[Directory] = []
        if path.resolve().name == OURS:
            raise _unsafe(path, "it is where another store keeps its marks; use the folder above it")
        try:
            data = _open_data(path)
            opened.append(data)
            ours = data.subfolder(OURS)
            opened.append(ours)
            _check_folders(data, ours)
            with Locks(ours, lock_timeout).hold(_STORE.lock, str(path)):
                _check_locks(ours)
                for directory, name in ((data, OURS), (ours, _STORE.lock)):
                    _check_case(directory, name)
                keeping = _keeping_of(ours, xattrs) or _choose_keeping(ours, xattrs)
            return cls(data, ours, keeping, file_mode)
        except BaseException as error:
            for directory in opened:
                directory.close()
            if isinstance(error, OSError):
                raise _unsafe(path, f"{error}") from error
            raise

    def close(self) -> None:
        self.data.close()
        self.ours.close()


def _unsafe(path: Path | str, reason: str) -> UnsafeStore:
    return UnsafeStore("", f"{path} cannot be a file store: {reason}")


def _open_data(path: Path) -> Directory:
    real = path.resolve()
    made = True
    try:
        real.mkdir(PRIVATE_FOLDER)
    except FileExistsError:
        made = False
    except FileNotFoundError:
        raise _unsafe(path, f"the folder {real.parent} does not exist; make it first") from None
    try:
        parent = Directory.open(str(real.parent))
    except PermissionError:
        if made:
            raise
    else:
        # Even if it was there already: perhaps another process made it a moment ago and has not come this far.
        try:
            _sync(parent)
        finally:
            parent.close()
    return Directory.open(str(real))


def _check_folders(data: Directory, ours: Directory) -> None:
    status = os.fstat(ours.fd)
    if status.st_dev != os.fstat(data.fd).st_dev:
        raise _unsafe(data.path, f"{OURS} is on another file system; files must move into place by a rename")
    if status.st_mode & _OTHERS_WRITE:
        raise _unsafe(data.path, f"others may write into {OURS}; take their permission away")
    if os.fpathconf(data.fd, "PC_NAME_MAX") < MAX_COMPONENT:
        raise _unsafe(data.path, f"its file system cannot hold file names of {MAX_COMPONENT} bytes")
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=data.fd):
        raise _unsafe(data.path, "it is not writable for this process")
    for directory in (data, ours):
        _sync(directory)


def _sync(directory: Directory) -> None:
    try:
        directory.sync()
    except OSError as error:
        raise _unsafe(directory.path, f"its file system cannot fsync a folder ({error})") from error


def _check_case(directory: Directory, name: str) -> None:
    exact = os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
    with suppress(FileNotFoundError):
        other = os.stat(name.upper(), dir_fd=directory.fd, follow_symlinks=False)
        if (exact.st_dev, exact.st_ino) == (other.st_dev, other.st_ino):
            raise _unsafe(directory.path, "it does not tell upper from lower case: two resources would share a file")


def _check_locks(ours: Directory) -> None:
    fd = ours.open_file(_STORE.lock, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    finally:
        os.close(fd)
    raise _unsafe(ours.path, "flock has no effect on its file system")


def _keeping_of(ours: Directory, xattrs: bool) -> Keeping | None:
    """What a store was made with, ``None`` for a new one. Writes nothing: a full store can still be opened."""
    raw = ours.read(_STORE.mark)
    if raw is None:
        return None
    try:
        values = json.loads(raw)
        version, keeping = values["v"], Keeping(values["keeping"])
    except (ValueError, TypeError, KeyError) as error:
        raise _unsafe(ours.path, f"{_STORE.mark} cannot be read ({error}); restore it from a backup") from error
    if version != FORMAT:
        raise _unsafe(ours.path, f"it has format {version!r}, this library reads {FORMAT}; upgrade zkfence")
    if keeping is Keeping.XATTR and not (xattrs and _has_attribute(ours, _STORE.mark)):
        raise _unsafe(
            ours.path,
            f"its marks are in the extended attribute {ATTRIBUTE}, but its own file has lost it: move the store to "
            "a file system with such attributes, and copy it together with them (cp -a, rsync -aX)",
        )
    return keeping


def _choose_keeping(ours: Directory, xattrs: bool) -> Keeping:
    """Make a new store with what its file system has."""
    keeping = Keeping.XATTR if xattrs and _can_have_attributes(ours) else Keeping.SIDECAR
    content = json.dumps({"v": FORMAT, "keeping": keeping}).encode()
    ours.replace(
        ours,
        _STORE.mark,
        content,
        temp=_STORE.temp,
        attribute=content if keeping is Keeping.XATTR else None,  # goes missing where those of the data go missing
    )
    return keeping


def _has_attribute(ours: Directory, name: str) -> bool:
    try:
        return hasattr(os, "getxattr") and ours.read_attribute(name) is not None
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return False
        raise


def _can_have_attributes(ours: Directory) -> bool:
    if not hasattr(os, "setxattr"):
        return False
    try:
        ours.create(_STORE.temp, b"", attribute=_LARGE_TAG)
    except OSError as error:
        # ENOSPC: also from a file system that has attributes, but only small ones.
        if error.errno in _NO_ATTRIBUTES or (error.errno == errno.ENOSPC and os.fstatvfs(ours.fd).f_bavail > 0):
            return False
        raise
    ours.discard(_STORE.temp)
    return True
