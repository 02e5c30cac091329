"""Mark: what a destination remembers about a resource, for ever."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Final, Self

from ._errors import MarkCorrupt
from ._json import load_object
from ._stamp import MAX_OP
from ._token import Token

FORMAT: Final = 1
_KEYS: Final = frozenset({"v", "token", "written", "lock", "holder", "op", "digest", "reply"})
REPLY_LIMIT: Final = 256  # bytes of an op's reply that a mark keeps, for duplicates


@dataclass(frozen=True, slots=True)
class Mark:
    """The durable high-water mark of one resource.

    ``token``: the highest token that has claimed or written; never goes down.
    ``written``: the token of the last accepted write, ``None`` before the first one.
    ``lock``: the lock that the resource is pinned to.
    ``holder``, ``op``, ``digest``, ``reply``: the last request of ``token``'s holder; ``op`` is 0 before the first
    counted one, ``reply`` is ``None`` where it was larger than 256 bytes.
    """

    token: Token
    written: Token | None = None
    lock: str = ""
    holder: str = ""
    op: int = 0
    digest: str = ""
    reply: bytes | None = b""

    def to_json(self) -> str:
        """The mark as receivers that keep text store it: versioned JSON, tokens as strings."""
        fields = {
            "v": FORMAT,
            "token": str(self.token),
            "written": None if self.written is None else str(self.written),
            "lock": self.lock,
            "holder": self.holder,
            "op": self.op,
            "digest": self.digest,
            "reply": None if self.reply is None else base64.b64encode(self.reply).decode(),
        }
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes, resource: str) -> Self:
        """Read `to_json`'s form; raises `MarkCorrupt` for anything else, a newer format version among it."""
        try:
            fields = load_object(text)
            version = fields["v"]
            if type(version) is not int or version != FORMAT:
                raise MarkCorrupt(resource, f"its format is {version!r}, this library reads {FORMAT}")
            if fields.keys() != _KEYS:
                raise MarkCorrupt(resource, "it has fields too many or too few")
            written, reply, op = fields["written"], fields["reply"], fields["op"]
            mark = cls(
                Token.parse(fields["token"]),
                None if written is None else Token.parse(written),
                fields["lock"],
                fields["holder"],
                op,
                fields["digest"],
                None if reply is None else base64.b64decode(reply, validate=True),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise MarkCorrupt(resource, f"it is not a mark: {error}") from error
        texts = (mark.lock, mark.holder, mark.digest)
        if type(op) is not int or not 0 <= op <= MAX_OP or not all(isinstance(text, str) for text in texts):
            raise MarkCorrupt(resource, "a field has the wrong type")
        if mark.written is not None and mark.written > mark.token:
            raise MarkCorrupt(resource, "it was written by a token above its own")
        return mark
