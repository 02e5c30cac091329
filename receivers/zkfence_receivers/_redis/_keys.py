"""Keys: where a resource's mark and data are."""

from __future__ import annotations

from dataclasses import dataclass

from ..words import InvalidName, encode_component


@dataclass(frozen=True, slots=True)
class Keys:
    """The two keys of one resource. They share a hash tag, so that a cluster keeps them in one slot."""

    mark: bytes
    data: bytes

    @classmethod
    def of(cls, prefix: str, resource: str) -> Keys:
        # Encoded, a name has no braces that could end the hash tag early, and is never empty.
        stem = f"{prefix}:{{{encode_component(resource)}}}:"
        return cls(f"{stem}mark".encode(), f"{stem}data".encode())


def check_prefix(prefix: str) -> str:
    """Return ``prefix``, or raise `InvalidName`."""
    if not isinstance(prefix, str):
        raise InvalidName(f"a key prefix is text, not {type(prefix).__name__}")
    if not prefix or not prefix.isascii() or not prefix.isprintable():
        raise InvalidName(f"a key prefix is non-empty printable ASCII, not {prefix!r}")
    if "{" in prefix or "}" in prefix:
        raise InvalidName(f"a key prefix has no braces, they would move the keys to another slot: {prefix!r}")
    return prefix
