"""Record: a mark with what a file store has to remember beside it, as bytes."""

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
    values = {"v": FORMAT, **{field.name: getattr(record, field.name) for field in fields(record)}}
    values["mark"] = json.loads(record.mark.to_json())
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


def decode_record(kind: type[R], raw: bytes, resource: str) -> R:
    """Raises `MarkCorrupt` for anything that `encode_record` did not make of a ``kind``. Another resource's record
    is returned as it is."""
    try:
        values = json.loads(raw)
        version = values.pop("v")
        if version != FORMAT:
            raise MarkCorrupt(resource, f"its format is {version!r}, this library reads {FORMAT}")
        mark = Mark.from_json(json.dumps(values.pop("mark")), resource)
        return kind(mark=mark, **values)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise MarkCorrupt(resource, f"it is no record of a file store: {error}") from error
