"""Stamp: what travels with every request, so that the destination can judge it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from ._errors import InvalidStamp
from ._json import load_object
from ._name import decode_component, encode_component
from ._token import Token

FORMAT: Final = 1
MAX_OP: Final = 2**53 - 1  # exact in every number type that a store may have

_KEYS: Final = frozenset({"v", "token", "lock", "holder", "mode", "op"})
_HEADER: Final = "Fencing-"
_OP: Final = re.compile(r"[1-9][0-9]{0,15}", re.ASCII)


class Mode(StrEnum):
    """What a stamp permits."""

    WRITE = "write"
    READ = "read"


@dataclass(frozen=True, slots=True)
class Stamp:
    """One request's proof of who sent it.

    ``token``: the grant's fencing token. A plain ``int`` is checked and converted.
    ``lock``: ``<namespace id>/<lock name>``; tokens of different locks cannot be compared.
    ``holder``: the grant's GUID, which tells two holders of an equal token apart.
    ``op``: the number of this request among the grant's requests on the resource, 1, 2, 3 …; ``None`` for readers,
    and for foreign clients that cannot count. A request without ``op`` **must not** be sent twice: nothing can tell
    a late copy from a new request.

    Foreign clients may leave ``lock`` and ``holder`` empty; empty is compared like any other text.
    """

    token: Token
    lock: str = ""
    holder: str = ""
    mode: Mode = Mode.WRITE
    op: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "token", Token(self.token))
        for field in ("lock", "holder"):
            text = getattr(self, field)
            if not isinstance(text, str):
                raise InvalidStamp(f"a stamp's {field} is text, not {text!r}")
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise InvalidStamp(f"a stamp's {field} must be valid Unicode, not {text!r}") from error
        try:
            object.__setattr__(self, "mode", Mode(self.mode))
        except ValueError:
            raise InvalidStamp(f"a stamp's mode is 'write' or 'read', not {self.mode!r}") from None
        if self.op is not None and (type(self.op) is not int or not 1 <= self.op <= MAX_OP):
            raise InvalidStamp(f"a stamp's op is an integer from 1 to 2**53-1, not {self.op!r}")

    def to_json(self) -> str:
        """The stamp on the wire: a JSON object with its format version, the token as a string."""
        fields: dict[str, object] = {"v": FORMAT, "token": str(self.token), "lock": self.lock, "holder": self.holder}
        fields["mode"] = self.mode.value
        if self.op is not None:
            fields["op"] = self.op
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read `to_json`'s form; raises `InvalidStamp` or `InvalidToken`."""
        try:
            fields = load_object(text)
        except ValueError as error:
            raise InvalidStamp(f"a stamp is a JSON object: {error}") from error
        version = fields.get("v")
        if type(version) is not int or version != FORMAT:
            raise InvalidStamp(f"this library reads stamps of format {FORMAT}, not {version!r}; upgrade the older side")
        unknown = fields.keys() - _KEYS
        if unknown:
            raise InvalidStamp(f"a stamp of format {FORMAT} has no {', '.join(map(repr, sorted(unknown)))}")
        token = Token.parse(fields.get("token", ""))
        return cls(
            token, fields.get("lock", ""), fields.get("holder", ""), fields.get("mode", Mode.WRITE), fields.get("op")
        )

    def to_headers(self) -> dict[str, str]:
        """The stamp as HTTP headers: ``Fencing-Token`` and its companions, all ASCII."""
        headers = {
            f"{_HEADER}Version": str(FORMAT),
            f"{_HEADER}Token": str(self.token),
            f"{_HEADER}Lock": encode_component(self.lock),
            f"{_HEADER}Holder": encode_component(self.holder),
            f"{_HEADER}Mode": self.mode.value,
        }
        if self.op is not None:
            headers[f"{_HEADER}Op"] = str(self.op)
        return headers

    @classmethod
    def from_headers(cls, headers: Mapping[str, str]) -> Self:
        """Read `to_headers`'s form, names in any case; raises `InvalidStamp` or `InvalidToken`."""
        found: dict[str, str] = {}
        for name, value in headers.items():
            if not all(isinstance(text, str) for text in (name, value)):
                raise InvalidStamp(f"headers are text, not {name!r}: {value!r}")
            if not name.isascii():
                continue
            key = name.lower()
            if key.startswith(_HEADER.lower()):
                if key in found:
                    raise InvalidStamp(f"the header {name} is there twice")
                found[key] = value

        def header(name: str) -> str | None:
            return found.get(f"{_HEADER}{name}".lower())

        if header("Version") not in (None, str(FORMAT)):
            raise InvalidStamp(f"this library reads stamps of format {FORMAT}, not {header('Version')!r}")
        op = header("Op")
        if op is not None and _OP.fullmatch(op) is None:
            raise InvalidStamp(f"{_HEADER}Op is an integer from 1 to 2**53-1, not {op!r}")
        try:
            lock, holder = (decode_component(header(name) or "") for name in ("Lock", "Holder"))
        except ValueError as error:
            raise InvalidStamp(f"{_HEADER}Lock and {_HEADER}Holder are percent-encoded: {error}") from error
        return cls(
            Token.parse(header("Token") or ""),
            lock,
            holder,
            Mode.WRITE if (mode := header("Mode")) is None else mode,  # type: ignore[arg-type]  # checked in __post_init__
            None if op is None else int(op),
        )
