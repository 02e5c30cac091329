"""Record: a mark with what a file store has to remember beside it, as two lines of JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Final, TypeVar

from ..words import Mark, MarkCorrupt

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Record:
    """``resource`` is kept so that a record that got to another resource's place is found out."""

    resource: str
    mark: Mark

    def __post_init__(self) -> None:
        """Raises ValueError for a field that cannot be."""
        if not isinstance(self.resource, str):
            raise ValueError("its resource is no text")


R = TypeVar("R", bound=Record)


def encode_record(record: Record) -> bytes:
    own = {field.name: getattr(record, field.name) for field in fields(record) if field.name != "mark"}
    line = json.dumps({"v": FORMAT, **own}, ensure_ascii=False, separators=(",", ":"))
    return f"{line}\n{record.mark.to_json()}\n".encode()


def decode_record(kind: type[R], raw: bytes, resource: str) -> R:
    """Raises `MarkCorrupt` for anything that `encode_record` did not make of a ``kind``. Another resource's record
    is returned as it is."""
    try:
        line, _, mark = raw.partition(b"\n")
        own = json.loads(line)
        version = own.pop("v")
        if version != FORMAT:
            raise MarkCorrupt(resource, f"its format is {version!r}, this library reads {FORMAT}")
        return kind(mark=Mark.from_json(mark, resource), **own)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise MarkCorrupt(resource, f"it is no record of a file store: {error}") from error
