"""ResourceFiles: what a way of keeping marks and data in files has to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import final

from ..words import Mark, MarkCorrupt
from ._names import Names
from ._record import R, decode_record
from ._root import Root


class Data(Enum):
    """What lies where a resource's data belongs."""

    ABSENT = "absent"
    OURS = "ours"
    FOREIGN = "foreign"  # it did not come through a receiver


class ResourceFiles(ABC):
    """One resource as its files show it, from when the object is made until one change through it.

    Without the resource's lock only ``mark`` may be used. With it, `settle` comes first where `untidy` or the lock's
    note says so.

    Changes are durable when they return. An `OSError` means that a change did not happen (the mark's token may be the
    new one, its op is not), `Unsettled` that it may have.
    """

    data: Data
    mark: Mark | None

    def __init__(self, root: Root, resource: str) -> None:
        self._root = root
        self._resource = resource
        self._names = Names.of(resource)

    @final
    def read(self) -> bytes | None:
        """The data, whoever it is from."""
        return None if self.data is Data.ABSENT else self._root.data.read(self._names.data)

    @final
    def _read_mark(self, kind: type[R]) -> R | None:
        raw = self._root.ours.read(self._names.mark)
        if raw is None:
            return None
        record = decode_record(kind, raw, self._resource)
        if record.resource != self._resource:
            raise MarkCorrupt(self._resource, f"it is the mark of {record.resource!r}")
        return record

    @property
    @abstractmethod
    def untidy(self) -> bool:
        """Whether the files show that a request was interrupted: the machine went down."""

    @abstractmethod
    def settle(self) -> None:
        """After an interruption or an unknown outcome: finish what was committed, clear away what was not, and write
        what stands anew, so that it is durable for certain. If it fails it has to be called again."""

    @abstractmethod
    def claim(self, mark: Mark) -> None:
        """Raise the mark; the data stays."""

    @abstractmethod
    def write(self, mark: Mark, payload: bytes) -> None:
        """Change data and mark in one step."""

    @abstractmethod
    def delete(self, mark: Mark) -> None:
        """Delete the data and change the mark in one step."""
