"""Row: one kind of load."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

_NAME: Final = re.compile(r"(un)?contended-([1-9][0-9]{0,4})")


@dataclass(frozen=True, slots=True)
class Row:
    """``uncontended-8``: 8 threads, each with a lock of its own. ``contended-100``: 100 of them on one lock. All on one
    client."""

    contended: bool
    size: int

    @classmethod
    def parse(cls, name: str) -> Self:
        """Raises `ValueError`."""
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"a row is called uncontended-N or contended-N, not {name!r}")
        return cls(contended=match[1] is None, size=int(match[2]))

    @property
    def name(self) -> str:
        return f"{'contended' if self.contended else 'uncontended'}-{self.size}"

    @property
    def title(self) -> str:
        """For people."""
        if self.contended:
            return f"contended, {self.size:,}"
        return f"uncontended, {self.size} thread{'s' if self.size > 1 else ''}"


ROWS: Final = tuple(
    Row.parse(name)
    for name in ("uncontended-1", "uncontended-8", "contended-2", "contended-10", "contended-100", "contended-1000")
)
