"""Token: the number that every grant carries.

Larger than that of every earlier grant of the same lock, for ever. The idea is Chubby's sequencer
(Burrows 2006, section 2.4) and Kafka's producer epoch.
"""

from __future__ import annotations

import re
from typing import Final, Self

from ._errors import InvalidToken

SEQUENCES_PER_EPOCH: Final = 2**31
MAX_TOKEN: Final = 2**63 - 1

_WIRE: Final = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


class Token(int):
    """A fencing token: an integer from 1 to 2**63-1.

    Tokens of zkfence are ``epoch * 2**31 + sequence``; other coordinators mint other numbers, and receivers take
    those too. ``str(token)`` is the wire form, canonical decimal; ``token.dotted`` is what people are shown.

    Never put a token through a float: above 2**53 neighbours become equal.
    """

    __slots__ = ()

    def __new__(cls, value: int) -> Self:
        """Raises `InvalidToken` unless ``value`` is an ``int`` (not a ``bool``) from 1 to 2**63-1."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidToken(f"a token is an integer, not {type(value).__name__} {value!r}")
        if not 1 <= value <= MAX_TOKEN:
            raise InvalidToken(f"a token is from 1 to 2**63-1, not {value}")
        return super().__new__(cls, value)

    @classmethod
    def of(cls, epoch: int, sequence: int) -> Self:
        """The token of contender ``sequence`` in ``epoch``."""
        if not 1 <= epoch < 2**32 or not 0 <= sequence < SEQUENCES_PER_EPOCH:
            raise InvalidToken(f"no token has epoch {epoch} and sequence {sequence}")
        return cls(epoch * SEQUENCES_PER_EPOCH + sequence)

    @classmethod
    def parse(cls, text: object) -> Self:
        """Read the wire form, ``[1-9][0-9]{0,18}`` and nothing else; raises `InvalidToken`."""
        if not isinstance(text, str) or _WIRE.fullmatch(text) is None:
            raise InvalidToken(f"a token's text is 1 to 19 digits 0-9 without a leading zero, not {text!r}")
        return cls(int(text))

    @property
    def epoch(self) -> int:
        return self // SEQUENCES_PER_EPOCH

    @property
    def sequence(self) -> int:
        return self % SEQUENCES_PER_EPOCH

    @property
    def dotted(self) -> str:
        """``epoch.sequence``, for people; not a wire form."""
        return f"{self.epoch}.{self.sequence}"
