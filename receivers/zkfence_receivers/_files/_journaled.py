"""JournaledFiles: for file systems without extended attributes; the sidecar is also the journal of the data."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum

from ..words import Action, Mark, digest_of
from ._errors import after_commit
from ._record import Record, encode_record
from ._resource import Data, ResourceFiles
from ._root import Root


class Content(StrEnum):
    """What the data file has to be."""

    ABSENT = "absent"  # not there: what is there is foreign
    PRESENT = "present"  # there, or still waiting under the name 'next'
    LEAVING = "leaving"  # deleted; the file may still have to be removed


@dataclass(frozen=True, slots=True)
class Entry(Record):
    """``digest`` is that of the content; it tells the file under the name 'next' that was committed from a later one
    that was not."""

    content: Content
    digest: str = ""

    def __post_init__(self) -> None:
        super(Entry, self).__post_init__()
        object.__setattr__(self, "content", Content(self.content))
        if not isinstance(self.digest, str):
            raise ValueError("its digest is no text")


class JournaledFiles(ResourceFiles):
    """Every change is committed by renaming the sidecar.

    A write puts the new data on the disk under the name 'next', commits, and moves it into place; a deletion commits,
    and then removes. Whoever comes next finishes what was committed. Data that was exchanged past the receiver is
    noticed only where there should be none.
    """

    def __init__(self, root: Root, resource: str) -> None:
        super().__init__(root, resource)
        self._entry = self._read_mark(Entry)
        self.mark = None if self._entry is None else self._entry.mark
        self.data = self._look()

    @property
    def untidy(self) -> bool:
        if self._entry is not None and self._entry.content is Content.LEAVING:
            return True
        return self._root.ours.has(self._names.next)

    def settle(self) -> None:
        entry, ours, names = self._entry, self._root.ours, self._names
        ours.discard(names.temp)
        if entry is not None and entry.content is Content.PRESENT and self._next_is_committed(entry):
            ours.move(names.next, self._root.data, names.data)
        ours.discard(names.next)  # also after the move: a rename of a file to itself leaves both names
        if entry is not None and entry.content is Content.LEAVING:
            self._finish_deletion(entry)
        elif entry is not None:
            self.data = self._look()
            content = self.read() if self.data is Data.OURS else None
            if content is None:
                self._commit(entry)
            else:
                self._put_data(entry, content)
        self.data = self._look()

    def claim(self, mark: Mark) -> None:
        entry = self._entry
        self._commit(Entry(self._resource, mark, Content.ABSENT) if entry is None else replace(entry, mark=mark))

    def write(self, mark: Mark, payload: bytes) -> None:
        self._put_data(Entry(self._resource, mark, Content.PRESENT), payload)

    def delete(self, mark: Mark) -> None:
        if self.data is Data.ABSENT:
            self._commit(Entry(self._resource, mark, Content.ABSENT))
            return
        entry = Entry(self._resource, mark, Content.LEAVING)
        self._commit(entry)
        with after_commit():
            self._finish_deletion(entry)

    def _put_data(self, entry: Entry, payload: bytes) -> None:
        ours, names = self._root.ours, self._names
        # In one step: what may lie there is the only safe copy of committed data whose move was interrupted.
        # And durably: a commit must not outlive its data.
        ours.replace(ours, names.next, payload, temp=names.temp, mode=self._root.file_mode)
        try:
            self._commit(replace(entry, digest=digest_of(Action.WRITE, payload)))
        except OSError:
            with suppress(OSError):
                ours.discard(names.next)
            raise
        with after_commit():
            ours.move(names.next, self._root.data, names.data)

    def _finish_deletion(self, entry: Entry) -> None:
        self._root.data.remove(self._names.data)
        self._commit(replace(entry, content=Content.ABSENT))

    def _commit(self, entry: Entry) -> None:
        ours, names = self._root.ours, self._names
        ours.replace(ours, names.mark, encode_record(entry), temp=names.temp)
        self._entry = entry

    def _look(self) -> Data:
        if not self._root.data.has(self._names.data):
            return Data.ABSENT
        if self._entry is None or self._entry.content is Content.ABSENT:
            return Data.FOREIGN
        return Data.OURS

    def _next_is_committed(self, entry: Entry) -> bool:
        waiting = self._root.ours.read(self._names.next)
        return waiting is not None and digest_of(Action.WRITE, waiting) == entry.digest
