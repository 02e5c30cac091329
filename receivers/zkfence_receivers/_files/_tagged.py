"""TaggedFiles: the record of a write is an extended attribute of the data file, and arrives with it in one rename."""

from __future__ import annotations

from dataclasses import dataclass

from ..words import Mark
from ._errors import after_commit
from ._record import Record, decode_record, encode_record
from ._resource import Data, ResourceFiles
from ._root import Root


@dataclass(frozen=True, slots=True)
class Tag(Record):
    """``revision`` numbers the resource's records, whichever file they are in: requests without ``op`` leave equal
    marks, but not equal revisions."""

    revision: int

    def __post_init__(self) -> None:
        super(Tag, self).__post_init__()  # the short form does not work in a class with slots=True
        if type(self.revision) is not int or self.revision < 1:
            raise ValueError(f"its revision is {self.revision!r}")

    @property
    def rank(self) -> tuple[int, int]:
        """The higher one is the newer record; no token ever goes down, whatever happened to the files."""
        return self.mark.token, self.revision


@dataclass(frozen=True, slots=True)
class Sidecar(Tag):
    """``floor``: the revision of the last deletion, 0 before the first one; data with a lower one was deleted."""

    floor: int

    def __post_init__(self) -> None:
        super(Sidecar, self).__post_init__()
        if type(self.floor) is not int or self.floor < 0:
            raise ValueError(f"its floor is {self.floor!r}")

    @property
    def is_deleting(self) -> bool:
        """Whether the data may still have to be removed: nothing was recorded after the deletion."""
        return self.revision == self.floor


class TaggedFiles(ResourceFiles):
    """Claims and deletions are committed by renaming the sidecar, writes by renaming the tagged data file.

    The mark is the newer of the two. The sidecar's token is never below the data file's: it is raised first, so that
    a data file that loses its tag (or is removed, or restored from a backup) cannot lower the mark. Data without our
    tag is foreign, and so is data that somebody brings back after it was deleted.
    """

    def __init__(self, root: Root, resource: str) -> None:
        super().__init__(root, resource)
        self._sidecar = self._read_mark(Sidecar)
        self._tag, self.data = self._read_tag()
        records = [record for record in (self._sidecar, self._tag) if record is not None]
        self.mark = max(records, key=lambda record: record.rank).mark if records else None
        self._revision = max((record.revision for record in records), default=0)

    @property
    def untidy(self) -> bool:
        return self._sidecar is not None and self._sidecar.is_deleting

    def settle(self) -> None:
        self._root.ours.discard(self._names.temp)
        if self._sidecar is not None and self._sidecar.is_deleting:
            self._finish_deletion(self._sidecar.mark)
        elif self._sidecar is not None:
            self._put_sidecar(self._sidecar)
        content = self.read() if self.data is Data.OURS else None
        if content is not None and self._tag is not None:
            self._put_data(self._tag, content)

    def claim(self, mark: Mark) -> None:
        self._put_sidecar(Sidecar(self._resource, mark, self._next_revision(), self._floor))

    def write(self, mark: Mark, payload: bytes) -> None:
        if self._sidecar is None or self._sidecar.mark.token < mark.token:
            self.claim(self._claimed(mark))
        self._put_data(Tag(self._resource, mark, self._next_revision()), payload)

    def delete(self, mark: Mark) -> None:
        if self.data is Data.ABSENT:
            self.claim(mark)
            return
        revision = self._next_revision()
        self._put_sidecar(Sidecar(self._resource, mark, revision, floor=revision))
        with after_commit():
            self._finish_deletion(mark)

    def _finish_deletion(self, mark: Mark) -> None:
        if self._is_deleted(self._tag):
            self._root.data.remove(self._names.data)
        else:
            self._root.data.sync()
        self.claim(mark)  # what lies there from now on is somebody else's

    @property
    def _floor(self) -> int:
        return 0 if self._sidecar is None else self._sidecar.floor

    def _next_revision(self) -> int:
        self._revision += 1
        return self._revision

    def _claimed(self, mark: Mark) -> Mark:
        """What may be known of ``mark`` before its data is there: the token, but not the op."""
        if self.mark is None:
            return Mark(mark.token, None, mark.lock, mark.holder)
        if self.mark.token == mark.token:
            return self.mark
        return Mark(mark.token, self.mark.written, mark.lock, mark.holder)

    def _is_deleted(self, tag: Tag | None) -> bool:
        if tag is None or self._sidecar is None:
            return False
        return tag.revision < self._sidecar.floor and tag.mark.token <= self._sidecar.mark.token

    def _put_sidecar(self, sidecar: Sidecar) -> None:
        ours, names = self._root.ours, self._names
        ours.replace(ours, names.mark, encode_record(sidecar), temp=names.temp)
        self._sidecar = sidecar

    def _put_data(self, tag: Tag, payload: bytes) -> None:
        self._root.ours.replace(
            self._root.data,
            self._names.data,
            payload,
            temp=self._names.temp,
            mode=self._root.file_mode,
            attribute=encode_record(tag),
        )

    def _read_tag(self) -> tuple[Tag | None, Data]:
        try:
            raw = self._root.data.read_attribute(self._names.data)
        except FileNotFoundError:
            return None, Data.ABSENT
        tag = None if raw is None else decode_record(Tag, raw, self._resource)
        if tag is None or tag.resource != self._resource:  # another one's data, copied here with its attributes
            return None, Data.FOREIGN
        if self._is_deleted(tag):
            return tag, Data.ABSENT if self.untidy else Data.FOREIGN
        return tag, Data.OURS
