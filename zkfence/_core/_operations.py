"""What a protocol step may ask for, and what it gets."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar, cast


@dataclass(frozen=True, slots=True)
class Stat:
    """The part of ZooKeeper's stat that the protocol uses."""

    czxid: int
    version: int
    ephemeral_owner: int


@dataclass(frozen=True, slots=True)
class Node:
    """A node's data and stat."""

    data: bytes
    stat: Stat


@dataclass(frozen=True, slots=True)
class Listing:
    """The names of a node's children, in no order, and the node's own stat."""

    names: tuple[str, ...]
    stat: Stat


@dataclass(frozen=True, slots=True)
class Created:
    """The full path that ZooKeeper gave to a new node, and its stat."""

    path: str
    stat: Stat


# --- operations -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Get:
    """Answered with a `Node`. With ``watch``, the next change of the node ends a `Wait`."""

    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Children:
    """Answered with a `Listing`."""

    path: str


@dataclass(frozen=True, slots=True)
class Create:
    """Answered with `Created` (``None`` inside a `Multi`)."""

    path: str
    data: bytes = b""
    contender: bool = False  # ephemeral and sequential


@dataclass(frozen=True, slots=True)
class Delete:
    path: str


@dataclass(frozen=True, slots=True)
class SetData:
    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Check:
    """Inside a `Multi`: the node exists."""

    path: str


@dataclass(frozen=True, slots=True)
class Multi:
    """All or nothing; a quorum write even where it only checks."""

    operations: tuple[Create | Delete | SetData | Check, ...]


@dataclass(frozen=True, slots=True)
class Sync:
    """What is read behind it on the same connection is at least as new as the leader was when it answered."""

    path: str


Operation = Get | Children | Create | Delete | Multi | Sync


# --- failures ---------------------------------------------------------------------------------------------------


class Failure(Exception):
    """What ZooKeeper, or the loss of it, answered instead of a result."""


class NoNode(Failure):
    """The node, or the parent of a node to be created, is not there. In a `Multi`, ``index`` tells which operation."""

    def __init__(self, index: int = 0) -> None:
        super().__init__(index)
        self.index = index


class NodeExists(Failure):
    pass


class BadVersion(Failure):
    pass


class NotEmpty(Failure):
    pass


class ConnectionLost(Failure):
    """No answer: a write may or may not have been applied. Answered only once there is a connection again, so that
    asking again at once is all right."""


class SessionLost(Failure):
    """The session is over, and so is every ephemeral node of it."""


# --- what a step yields -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Flight:
    """Operations sent back to back, without waiting for each other's answer. ZooKeeper keeps their order.

    Answered with `Landed`. A failed operation does not stop the later ones.
    """

    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class Landed:
    """``sent_at``: the clock (seconds) just before the first operation left. A failure stands in its result's place,
    and so does the `LockError` for an answer that no step can handle."""

    sent_at: float
    results: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """Wait until there is a connection."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until a watched node changes or the connection does. May end early: look again."""


@dataclass(frozen=True, slots=True)
class Jitter:
    """Pause for a short random time that grows with ``attempt`` (0, 1, 2 …), so that rivals do not meet again."""

    attempt: int


Effect = Flight | Ready | Wait | Jitter

T = TypeVar("T")
Steps = Generator[Effect, Any, T]
"""A protocol step: yields effects, is sent their answers, returns a ``T``."""


def fly(*operations: Operation) -> Steps[Landed]:
    """One flight."""
    return cast(Landed, (yield Flight(operations)))


def land(result: object) -> Any:
    """A result as it is; a failure, or an error that no step can handle, raised."""
    if isinstance(result, Exception):
        raise result
    return result


def ask(operation: Operation) -> Steps[Any]:
    """A flight of one: its result, or its failure raised."""
    landed = yield from fly(operation)
    return land(landed.results[0])


def read(*operations: Get | Children | Sync) -> Steps[tuple[Any, ...]]:
    """A flight of reads, sent again until none is lost with a connection. Other failures stand in their places.

    Raises `SessionLost`.
    """
    while True:
        landed = yield from fly(*operations)
        if any(isinstance(result, SessionLost) for result in landed.results):
            raise SessionLost
        if not any(isinstance(result, ConnectionLost) for result in landed.results):
            return landed.results
