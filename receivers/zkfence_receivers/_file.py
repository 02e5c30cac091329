"""FileReceiver: resources as plain files of one folder."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ._files._directory import PRIVATE_FILE
from ._files._errors import Misplaced, Unsettled
from ._files._journaled import JournaledFiles
from ._files._lock import Hold, Locks
from ._files._names import Names
from ._files._resource import Data, ResourceFiles
from ._files._root import Keeping, Root
from ._files._tagged import TaggedFiles
from ._receiver import ABSENT, EXISTED, Receiver, Reply, Request
from .words import (
    CLAIMS,
    Action,
    Mark,
    OutcomeUnknown,
    StoreFailed,
    Unfenced,
    UnsafeStore,
    Verdict,
    check_name,
    with_reply,
)

_FILES: Final[dict[Keeping, type[ResourceFiles]]] = {
    Keeping.XATTR: TaggedFiles,
    Keeping.SIDECAR: JournaledFiles,
}


class FileReceiver(Receiver):
    """Keeps each resource as a plain file in the folder ``root``: exactly the bytes that were written, nothing else.

    A resource's file is named after it, percent-encoded (``reports/7`` is ``reports%2F7``; a name that gets too long
    ends in a hash). Marks and locks are in ``root/.zkfence``, one small file of each per resource, for ever: never
    delete them, and back the folder up as a whole, with extended attributes.

    Guaranteed on a local file system that keeps its own promises (fsync, rename, flock; ext4, XFS and the like): what
    the base class says, through kill -9 and power loss at any moment, for all threads and processes that use the same
    root on one machine. A claim and a write cost an fsync of a file and one of a folder each, a deletion two and
    three; without extended attributes (older tmpfs and NFS, macOS) a write costs as much as a deletion.
    Not guaranteed: anything about those who change files in the root without a receiver. New files that they bring are
    noticed (`Unfenced`), changes within a file of ours are not; without extended attributes, neither are new files in
    the place of ours.

    ``root`` is made if only its parent exists. ``lock_timeout``: seconds that a request waits while others use the
    same resource, before it raises `StoreBusy`; a stopped process keeps a resource locked, a dead one does not.
    ``file_mode``: permissions of data files; everything else that is made is private to the user, ``root`` too.

    Errors beside those of the base class: `UnsafeStore` where the file system lacks something, or where a symbolic
    link or the like lies in the place of a file; `StoreFailed` where the file system refused (disk full, no
    permission) and nothing was applied; `OutcomeUnknown` where it failed too late to say.

    A context manager: `close` gives the two open folders back.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        lock_timeout: float = 10.0,
        file_mode: int = PRIVATE_FILE,
        _xattrs: bool = True,
    ) -> None:
        if not 0 <= lock_timeout <= threading.TIMEOUT_MAX:
            raise ValueError(f"lock_timeout is a number of seconds from 0 on, not {lock_timeout!r}")
        if file_mode & ~0o777 or not file_mode & 0o400:
            raise ValueError(f"file_mode is a set of permissions that lets the owner read, not {file_mode!r}")
        self._root = Root.open(Path(root), file_mode=file_mode, lock_timeout=lock_timeout, xattrs=_xattrs)
        self._locks = Locks(self._root.ours, lock_timeout)
        self._files = _FILES[self._root.keeping]
        self._close = weakref.finalize(self, self._root.close)

    def close(self) -> None:
        """Close the folders; no request may be under way. Later requests raise `StoreFailed`."""
        self._close()

    def mark(self, resource: str) -> Mark | None:
        names, ours = Names.of(check_name(resource, "resource")), self._root.ours
        with _told(resource):
            if not ours.has(names.lock) and not ours.has(names.mark):  # unknown: leave no files behind for asking
                return self._files(self._root, resource).mark
            with self._locks.hold(names.lock, resource) as hold:
                return self._visit(hold, resource).mark

    def _perform(self, request: Request) -> Reply:
        resource = request.resource
        with _told(resource), self._locks.hold(Names.of(resource).lock, resource) as hold:
            files = self._visit(hold, resource)
            decision = request.judge(files.mark, data_present=files.data is not Data.ABSENT)
            if files.data is Data.FOREIGN and request.action is not Action.ADOPT:
                raise Unfenced(resource, request.stamp, files.mark)
            existed = files.data is not Data.ABSENT
            if decision.verdict is Verdict.DUPLICATE:
                assert decision.mark is not None
                return Reply(existed=decision.mark.reply == EXISTED, duplicate=True)
            if request.action is Action.READ:
                return Reply(data=files.read(), existed=existed)
            assert decision.mark is not None
            try:
                _change(hold, files, request, decision.mark)
            except Unsettled as error:
                raise OutcomeUnknown(resource, request.stamp, str(error), claiming=request.action in CLAIMS) from error
            return Reply(existed=existed)

    def _visit(self, hold: Hold, resource: str) -> ResourceFiles:
        """The resource's files, with nothing left to do from earlier requests."""
        files = self._files(self._root, resource)
        if hold.unfinished or files.untidy:
            hold.start()
            files.settle()
            hold.finish()
        return files


def _change(hold: Hold, files: ResourceFiles, request: Request, mark: Mark) -> None:
    if request.action is Action.WRITE:
        with hold.change():
            files.write(mark, request.payload)
    elif request.action is Action.DELETE:
        with hold.change():
            files.delete(with_reply(mark, request.stamp, ABSENT if files.data is Data.ABSENT else EXISTED))
    elif files.data is Data.FOREIGN and (content := files.read()) is not None:
        # A copy: whoever still has the old file open cannot change the new one.
        with hold.change():
            files.write(mark, content)
    elif mark != files.mark:
        with hold.change():
            files.claim(mark)


@contextmanager
def _told(resource: str) -> Iterator[None]:
    """Errors of the file system in a receiver's words."""
    try:
        yield
    except Misplaced as error:
        raise UnsafeStore(resource, f"{resource!r}: {error}. Nothing of this request was applied") from error
    except (OSError, Unsettled) as error:
        raise StoreFailed(
            resource, f"{resource!r}: the file system refused ({error}). Nothing of this request was applied"
        ) from error
