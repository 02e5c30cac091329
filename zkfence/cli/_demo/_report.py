"""A report: the text that the workers extend, one line each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Lines: TypeAlias = tuple[str, ...]


def lines_of(body: bytes | None) -> Lines:
    """The lines of a report's bytes; none where there is no report yet."""
    return tuple((body or b"").decode(errors="replace").splitlines())


def body_of(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def label_of(line: str) -> str:
    """What a line is called for short: ``A1`` for "A1: 40 crates arrived"."""
    return line.partition(":")[0]
