"""Locks: one request at a time per resource, over all threads and processes of a machine."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from ..words import StoreBusy
from ._directory import Directory
from ._errors import Misplaced

if TYPE_CHECKING:
    from threading import RLock  # a function, for the interpreter

_FIRST_DELAY: Final = 0.0005  # seconds between two attempts at a lock of another process: it doubles …
_LAST_DELAY: Final = 0.002  # … up to this: a lock that is in constant use is free only for moments

_NOTE_SIZE: Final = 64
_CHANGING, _DONE = b"*", b"-"  # a note's first byte


class Hold:
    """A resource's lock while it is held, and the note in the lock file that tells how its last change ended.

    A note that still says 'changing' when somebody else gets the lock was left by a process that was killed, or whose
    fsync failed: what it did is visible, but perhaps not on the disk. The note need not be durable: where the machine
    itself went down, what is visible afterwards *is* what is on the disk.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.unfinished = os.pread(fd, 1, 0) not in (b"", _DONE)

    @contextmanager
    def change(self) -> Iterator[None]:
        """For the time of a change. It counts as finished if it succeeds, and if it fails with an `OSError`: then it
        did not happen. Anything else leaves it unfinished."""
        self.start()
        try:
            yield
        except OSError:
            self.finish()
            raise
        self.finish()

    def start(self) -> None:
        """Note that a change is under way, and whose."""
        note = b"%b%d %b" % (_CHANGING, os.getpid(), socket.gethostname().encode())
        # In place and of one size: after the first time it needs no space, not even on a full disk.
        os.pwrite(self._fd, note[:_NOTE_SIZE].ljust(_NOTE_SIZE), 0)

    def finish(self) -> None:
        """Note that the last change is known to be durable, or not to have happened."""
        with suppress(OSError):  # the change is done; at worst the next request does it once more
            os.pwrite(self._fd, _DONE, 0)


class Locks:
    """The locks of one store: a lock file per resource, created once and never deleted.

    Threads of one process queue for a mutex first, so that only one of them polls. ``timeout`` (seconds) is for the
    whole wait. Locks end with their process, however it ends.
    """

    def __init__(self, directory: Directory, timeout: float) -> None:
        self._directory = directory
        self._timeout = timeout
        self._mutexes = _Mutexes()
        _every.add(self)

    @contextmanager
    def hold(self, name: str, resource: str) -> Iterator[Hold]:
        """Hold the lock file ``name``; raises `StoreBusy`, which tells who has it, at the deadline."""
        deadline = time.monotonic() + self._timeout
        with self._mutexes.hold(name, self._timeout) as mine:
            if not mine:
                raise self._busy(name, resource)
            while True:
                fd = self._directory.open_file(name, os.O_RDWR | os.O_CREAT)
                _held.add(fd)
                try:
                    if not _lock(fd, deadline):
                        raise self._busy(name, resource)
                    if os.fstat(fd).st_nlink > 1:  # the note would be written into somebody else's file
                        raise Misplaced(f"{self._directory.path}/{name} has a second name; remove that link")
                    if self._directory.is_at(name, fd):
                        yield Hold(fd)
                        return
                    # A person deleted or moved the lock file while we waited: others lock the new one.
                finally:
                    # Unlocked first, in one call: a signal handler that raises (Ctrl-C) comes before it or after it.
                    # And not by closing alone: a child process that was forked in between shares the lock.
                    # Neither step can undo what the request did, so its answer stands whatever they say.
                    try:
                        fcntl.flock(fd, fcntl.LOCK_UN)
                    except OSError:
                        pass
                    finally:
                        _held.discard(fd)
                        with suppress(OSError):
                            os.close(fd)

    def forget_holders(self) -> None:
        """In a child process: the threads that held the mutexes are not there."""
        self._mutexes = _Mutexes()

    def _busy(self, name: str, resource: str) -> StoreBusy:
        note = b""
        with suppress(OSError):
            note = self._directory.read(name) or b""
        changing = ""
        if note.startswith(_CHANGING):
            pid, _, host = note[1:].decode(errors="replace").strip().partition(" ")
            changing = f" (the last to begin a change was process {pid} on {host})"
        return StoreBusy(
            resource,
            f"{resource!r}: it stayed locked for all of {self._timeout:g} s{changing}; nothing was changed. "
            "Try again; if a process that uses it hangs or is stopped, resume it or end it",
        )


class _Mutexes:
    """A mutex per name, for as long as somebody holds it or waits for it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._users: dict[str, tuple[RLock, int]] = {}

    @contextmanager
    def hold(self, name: str, timeout: float) -> Iterator[bool]:
        """Tells whether the mutex was free in time."""
        with self._guard:
            mutex, users = self._users.get(name, (threading.RLock(), 0))
            self._users[name] = mutex, users + 1
        try:
            yield mutex.acquire(timeout=timeout)
        finally:
            # Whether it was acquired only the mutex knows for certain: a signal may have come before we could note it.
            with suppress(RuntimeError):
                mutex.release()
            with self._guard:
                mutex, users = self._users.pop(name)
                if users > 1:
                    self._users[name] = mutex, users - 1


def _lock(fd: int, deadline: float) -> bool:
    delay = _FIRST_DELAY
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            rest = deadline - time.monotonic()
            if rest <= 0:
                return False
            time.sleep(min(delay, rest))
            delay = min(2 * delay, _LAST_DELAY)
        else:
            return True


# A forked child shares the locks that its parent's threads hold, and would keep them if the parent were killed.
_every: weakref.WeakSet[Locks] = weakref.WeakSet()
_held: set[int] = set()


def _leave_to_parent() -> None:
    while _held:
        os.close(_held.pop())
    for locks in list(_every):
        locks.forget_holders()


os.register_at_fork(after_in_child=_leave_to_parent)
