"""Kind: what tells the locks apart. Which of those in front of a contender have to leave before it is its turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from zkfence_receivers.words import Mode


class Ahead(NamedTuple):
    """A contender that stands in front of another one: in an older epoch, or with a lower number in the same."""

    prefix: str
    path: str


@dataclass(frozen=True, slots=True)
class Kind:
    """``blockers`` picks, from those ahead (the first one first), whom to watch; nobody: it is the contender's turn.

    It must be its turn once nobody is ahead, and as long as it is not, at least one of the picked has to leave before
    it can be. The fewer, the fewer contenders are woken by one release.
    """

    prefix: str  # of its contenders' nodes
    mode: Mode  # what a grant may do at a receiver
    blockers: Callable[[Sequence[Ahead]], Sequence[Ahead]]
    last: bool  # a grant means that nobody is ahead any more
    family: frozenset[str]  # the prefixes of those that may contend for the same lock
    permits: int = 0  # of a semaphore


_WRITER: Final = "x-"
_READER: Final = "r-"
_READERS_AND_WRITERS: Final = frozenset({_READER, _WRITER})


def _everybody(ahead: Sequence[Ahead]) -> Sequence[Ahead]:
    return ahead[-1:]


def _writers(ahead: Sequence[Ahead]) -> Sequence[Ahead]:
    return [each for each in ahead if each.prefix != _READER][-1:]


EXCLUSIVE: Final = Kind(_WRITER, Mode.WRITE, _everybody, last=True, family=_READERS_AND_WRITERS)
READ: Final = Kind(_READER, Mode.READ, _writers, last=False, family=_READERS_AND_WRITERS)


@lru_cache(maxsize=256)
def semaphore(permits: int) -> Kind:
    """Admitted as one of the first ``permits``. Those ahead leave in any order, so as many of them have to be
    watched."""

    def surplus(ahead: Sequence[Ahead]) -> Sequence[Ahead]:
        return ahead[-permits:] if len(ahead) >= permits else ()

    prefix = f"s{permits}-"
    return Kind(prefix, Mode.WRITE, surplus, last=False, family=frozenset({prefix}), permits=permits)


def kind_of(prefix: str) -> Kind:
    """The kind of a contender's prefix."""
    kinds = {EXCLUSIVE.prefix: EXCLUSIVE, READ.prefix: READ}
    return kinds.get(prefix) or semaphore(int(prefix[1:-1]))
