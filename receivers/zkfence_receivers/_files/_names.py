"""Names: which files belong to a resource."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final, Self

from ..words import encode_component

MAX_COMPONENT: Final = 255  # bytes, what the file system must offer

_MAX_STEM: Final = 240  # leaves room for the suffixes


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one resource's files. ``data`` lies in the root, all others in our own folder.

    No two resources share a name, on any file system that tells upper from lower case: the encoding is reversible,
    each file has exactly one of four suffixes, and "+" is only found where a name was too long and ends in its hash.
    """

    data: str
    lock: str
    mark: str
    temp: str
    next: str

    @classmethod
    def of(cls, resource: str) -> Self:
        return cls.with_stem(_stem(resource))

    @classmethod
    def with_stem(cls, stem: str) -> Self:
        return cls(stem, f"{stem}.lock", f"{stem}.mark", f"{stem}.temp", f"{stem}.next")


def _stem(resource: str) -> str:
    component = encode_component(resource)
    if len(component) <= _MAX_STEM:
        return component
    digest = hashlib.sha256(resource.encode()).hexdigest()
    return f"{component[: _MAX_STEM - 1 - len(digest)]}+{digest}"
