"""Script: the Lua script's call, and its answers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from .._receiver import Request
from ..words import Mark, MarkCorrupt, ReceiverError, StoreFailed, Token, Verdict
from ._keys import Keys

SOURCE: Final = files(__package__).joinpath("admit.lua").read_bytes()
SHA: Final = hashlib.sha1(SOURCE, usedforsecurity=False).hexdigest()

_PROTOCOL: Final = "1"
_FORMAT: Final = b"1"
_FIELDS: Final = (b"v", b"token", b"written", b"lock", b"holder", b"op", b"digest", b"reply")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the script answered. ``mark`` is the present one, and is there where the request was not admitted."""

    verdict: Verdict
    mark: Mark | None = None
    existed: bool = False
    data: bytes | None = None


def arguments(keys: Keys, request: Request) -> tuple[bytes | str | int, ...]:
    """What follows the script, or its SHA, in the call."""
    stamp = request.stamp
    return (
        2,
        keys.mark,
        keys.data,
        _PROTOCOL,
        request.action.value,
        str(stamp.token),
        stamp.lock.encode(),
        stamp.holder.encode(),
        stamp.mode.value,
        "" if stamp.op is None else str(stamp.op),
        "" if stamp.op is None else request.digest,
        request.payload,
        *(["claimed"] if request.claimed else []),
    )


def read_answer(resource: str, answer: object) -> Answer:
    """Raises `MarkCorrupt`, and `StoreFailed` where the script could not judge the request."""
    head, *rest = _texts(answer)
    word = "" if head is None else head.decode()
    if word == "mark-corrupt":
        raise MarkCorrupt(resource, _reason(rest))
    if word == "wrong-type":
        raise StoreFailed(
            resource,
            f"{resource!r}: its data key holds a {_reason(rest)}, not a string, and was not touched. "
            "Find out who put it there; remove it, or use another prefix",
        )
    try:
        verdict = Verdict(word)
    except ValueError:
        raise _misunderstood(resource, word, rest) from None
    if verdict is Verdict.ADMITTED:
        existed, data = rest
        return Answer(verdict, existed=existed == b"1", data=data)
    return Answer(verdict, read_mark(resource, dict(zip(_FIELDS, rest, strict=True))) if rest else None)


def read_mark(resource: str, fields: Mapping[bytes, bytes | None]) -> Mark:
    """The mark that a hash holds; raises `MarkCorrupt`."""
    version, *values = (fields.get(name) for name in _FIELDS)
    if version is not None and version != _FORMAT:
        raise MarkCorrupt(resource, f"its format is {version!r}, this library reads {_FORMAT!r}")
    present = [value for value in values if value is not None]
    if version is None or len(present) != len(values):
        raise MarkCorrupt(resource, "a field is missing")
    try:
        token, written, lock, holder, op, digest = (value.decode() for value in present[:-1])
        mark = Mark(
            Token.parse(token),
            Token.parse(written) if written else None,
            lock,
            holder,
            int(Token.parse(op)) if op != "0" else 0,  # an op's text has the form of a token's
            digest,
            {b"+": present[-1][1:], b"-": None}[present[-1][:1]],
        )
    except (ValueError, KeyError) as error:
        raise MarkCorrupt(resource, f"it is not a mark: {error}") from error
    # The rest of the rules stands where the other receivers' marks are read.
    return Mark.from_json(mark.to_json(), resource)


def read_hash(answer: object) -> dict[bytes, bytes | None]:
    """HGETALL's answer: a map in RESP3, a flat list in RESP2."""
    if isinstance(answer, dict):
        return answer
    texts = _texts(answer)
    return {name: value for name, value in zip(texts[::2], texts[1::2], strict=True) if name is not None}


def _texts(answer: object) -> list[bytes | None]:
    assert isinstance(answer, Sequence), f"a flat list was expected, not {answer!r}"
    return list(answer)


def _reason(rest: list[bytes | None]) -> str:
    return b" ".join(text for text in rest if text is not None).decode(errors="replace")


def _misunderstood(resource: str, word: str, rest: list[bytes | None]) -> ReceiverError:
    return StoreFailed(resource, f"{resource!r}: the script on the server refused the request: {word}: {_reason(rest)}")
