"""What a protocol step may ask for, and what it gets."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast


class Stat(Protocol):
    """The part of ZooKeeper's stat that the protocol uses, under ZooKeeper's own names."""

    @property
    def czxid(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def ephemeralOwner(self) -> int: ...  # noqa: N802
    @property
    def numChildren(self) -> int: ...  # noqa: N802
    @property
    def pzxid(self) -> int: ...


# Tuples, because they are made several times per acquisition, and a frozen dataclass takes three times as long.


class Node(NamedTuple):
    """A node's data and stat."""

    data: bytes
    stat: Stat


class Listing(NamedTuple):
    """The names of a node's children, in no order, and the node's own stat."""

    names: Sequence[str]
    stat: Stat


class Created(NamedTuple):
    """The full path that ZooKeeper gave to a new node, and its stat."""

    path: str
    stat: Stat


# --- operations -------------------------------------------------------------------------------------------------


class Get(NamedTuple):
    """Answered with a `Node`. With ``watch``, the next change of the node ends a `Wait`."""

    path: str
    watch: bool = False


class Exists(NamedTuple):
    """Answered with a `Stat`, or `NoNode`."""

    path: str


class Children(NamedTuple):
    """Answered with a `Listing`."""

    path: str


class Create(NamedTuple):
    """Answered with `Created` (``None`` inside a `Multi`)."""

    path: str
    data: bytes = b""
    contender: bool = False  # ephemeral and sequential


class Delete(NamedTuple):
    path: str


class SetData(NamedTuple):
    path: str
    data: bytes
    version: int = -1  # any


class Check(NamedTuple):
    """Inside a `Multi`: the node exists."""

    path: str


class Multi(NamedTuple):
    """All or nothing; a quorum write even where it only checks."""

    operations: tuple[Create | Delete | SetData | Check, ...]


class Sync(NamedTuple):
    """What is read behind it on the same connection is at least as new as the leader was when it answered."""

    path: str


Read = Get | Exists | Children | Sync
Write = Create | Delete | Multi
Operation = Read | Write


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


class Flight(NamedTuple):
    """Operations sent back to back, without waiting for each other's answer. ZooKeeper keeps their order.

    Answered with `Landed`. A failed operation does not stop the later ones.
    """

    operations: tuple[Operation, ...]


class Landed(NamedTuple):
    """``sent_at``: the clock (seconds) just before the first operation left. A failure stands in its result's place,
    and so does the `LockError` for an answer that no step can handle."""

    sent_at: float
    results: tuple[object, ...]


class Ready(NamedTuple):
    """Wait until there is a connection that can write."""


class Wait(NamedTuple):
    """Wait until a watched node changes or the connection does. Answered with the paths of the nodes whose watches
    have fired. May end early: look again."""


class Jitter(NamedTuple):
    """Pause for a short random time that grows with ``attempt`` (0, 1, 2 …), so that rivals do not meet again."""

    attempt: int


Effect = Flight | Ready | Wait | Jitter

_BATCH: Final = 100  # kazoo's queue stalls above some 270 requests while the connection is away

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


def read(*operations: Read) -> Steps[tuple[Any, ...]]:
    """A flight of reads, sent again until none is lost with a connection. Other failures stand in their places.

    Raises `SessionLost`.
    """
    while True:
        landed = yield from fly(*operations)
        for result in landed.results:
            if isinstance(result, SessionLost):
                raise SessionLost
            if isinstance(result, ConnectionLost):
                break
        else:
            return landed.results


def read_many(operations: Sequence[Read]) -> Steps[list[Any]]:
    """`read` for any number of operations, in several flights."""
    results: list[Any] = []
    for start in range(0, len(operations), _BATCH):
        results += yield from read(*operations[start : start + _BATCH])
    return results
