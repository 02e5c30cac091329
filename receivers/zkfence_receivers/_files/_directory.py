"""Directory: plain files of one open folder, and how they are replaced durably."""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import suppress
from typing import Final, Self

from ._errors import Misplaced, Unsettled

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
ATTRIBUTE: Final = "user.zkfence"

# O_NONBLOCK: opening a planted FIFO must not hang.
_SAFE: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NOT_A_FILE: Final = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR})


class Directory:
    """An open folder. Every operation is relative to its descriptor and follows no symbolic link.

    An `OSError` from a change means that the change did not happen, `Unsettled` that it may have.
    """

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path

    @classmethod
    def open(cls, path: str) -> Self:
        return cls(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC), path)

    def subfolder(self, name: str) -> Self:
        """The folder ``name`` inside, made if need be."""
        with suppress(FileExistsError):
            os.mkdir(name, PRIVATE_FOLDER, dir_fd=self.fd)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        return type(self)(os.open(name, flags, dir_fd=self.fd), f"{self.path}/{name}")

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def open_file(self, name: str, flags: int) -> int:
        """A descriptor of the plain file ``name``; raises `Misplaced` for anything else that is there."""
        try:
            fd = os.open(name, flags | _SAFE, PRIVATE_FILE, dir_fd=self.fd)
        except OSError as error:
            if error.errno in _NOT_A_FILE:
                raise self._misplaced(name) from error
            raise
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise self._misplaced(name)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def has(self, name: str) -> bool:
        """Whether the plain file ``name`` is there."""
        status = self._status(name)
        if status is None:
            return False
        if not stat.S_ISREG(status.st_mode):
            raise self._misplaced(name)
        return True

    def is_at(self, name: str, fd: int) -> bool:
        """Whether the open file is the one of that name."""
        status = self._status(name)
        return status is not None and os.path.samestat(status, os.fstat(fd))

    def read(self, name: str) -> bytes | None:
        """The file's content, ``None`` where there is no file."""
        try:
            fd = self.open_file(name, os.O_RDONLY)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "rb") as file:
            return file.read()

    def read_attribute(self, name: str) -> bytes | None:
        """The file's `ATTRIBUTE`, ``None`` where it has none; raises FileNotFoundError."""
        fd = self.open_file(name, os.O_RDONLY)
        try:
            return os.getxattr(fd, ATTRIBUTE)
        except OSError as error:
            if error.errno == errno.ENODATA:
                return None
            raise
        finally:
            os.close(fd)

    def create(self, name: str, content: bytes, *, mode: int = PRIVATE_FILE, attribute: bytes | None = None) -> None:
        """Make a new file whose content is on the disk; what an earlier, interrupted attempt left there goes first.

        Only the content is durable; the name is once the folder is.
        """
        fd = self._open_new(name)
        try:
            try:
                _write_all(fd, content)
                if attribute is not None:
                    os.setxattr(fd, ATTRIBUTE, attribute)
                os.fchmod(fd, mode)  # not left to the umask
                _sync_file(fd)
            finally:
                os.close(fd)
        except BaseException:
            with suppress(OSError):
                os.unlink(name, dir_fd=self.fd)
            raise

    def move(self, name: str, to: Directory, new_name: str) -> None:
        """Put ``name`` in ``new_name``'s place, durably."""
        try:
            os.rename(name, new_name, src_dir_fd=self.fd, dst_dir_fd=to.fd)
        except OSError as error:
            if self._is_certainly_there(name):
                raise
            raise Unsettled(f"rename: {error}") from error
        try:
            to.sync()
        except OSError as error:
            # The next fsync may well succeed although this change is lost: nobody may take that for a confirmation.
            raise Unsettled(f"fsync of {to.path}: {error}") from error

    def replace(
        self,
        to: Directory,
        name: str,
        content: bytes,
        *,
        temp: str,
        mode: int = PRIVATE_FILE,
        attribute: bytes | None = None,
    ) -> None:
        """Give the file ``name`` in ``to`` a new content, in one step and durably, by way of our ``temp``."""
        self.create(temp, content, mode=mode, attribute=attribute)
        try:
            self.move(temp, to, name)
        except OSError:
            with suppress(OSError):
                self.discard(temp)  # a large file must not stay behind on a full disk
            raise

    def remove(self, name: str) -> None:
        """Remove a file, durably."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.fd)
        self.sync()

    def discard(self, name: str) -> None:
        """Remove what an interrupted attempt may have left; it may come back in a power loss, and does no harm."""
        if self.has(name):
            os.unlink(name, dir_fd=self.fd)

    def sync(self) -> None:
        """Make the folder's names durable."""
        _sync_file(self.fd)

    def _open_new(self, name: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            return self.open_file(name, flags)
        except FileExistsError:
            self.discard(name)
            return self.open_file(name, flags)

    def _status(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def _is_certainly_there(self, name: str) -> bool:
        try:
            return self._status(name) is not None
        except OSError:
            return False

    def _misplaced(self, name: str) -> Misplaced:
        return Misplaced(f"{self.path}/{name} is no plain file; find out who put it there, and move it away")


def _write_all(fd: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _sync_file(fd: int) -> None:
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # fsync leaves the data in the drive's cache there
    else:
        os.fsync(fd)
