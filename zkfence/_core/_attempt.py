"""Attempt: one contender, from its first request to its grant or its leaving."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from ._kinds import EXCLUSIVE, Kind
from ._layout import Layout, contender_name, counter_path
from ._operations import Created


class State(Enum):
    """How much of an attempt may be in ZooKeeper."""

    IDLE = auto()  # nothing
    CREATING = auto()  # a node may exist: a create was sent and its answer is not known
    QUEUED = auto()  # exactly the node ``path``


class Ledger(Protocol):
    """Where the room is booked that the attempt's node takes in its session."""

    def cancel(self, node: Attempt) -> None: ...


@dataclass(slots=True)
class Attempt:
    """What has to be known to leave without a trace, wherever the attempt is interrupted."""

    layout: Layout
    lock_name: str
    guid: str
    data: bytes  # the contender's node
    kind: Kind = EXCLUSIVE
    book: Callable[[Attempt, int], Ledger] | None = None  # room for a path of so many bytes; raises if there is none
    lock_path: str = ""
    state: State = State.IDLE
    epoch: int = 0  # in whose counter path a node may exist
    path: str = ""
    czxid: int = 0  # tells the own node from one at the same path, in a namespace that was made anew
    session_id: int = 0
    connection: int | None = None  # the node is watched, as long as the connection is this one
    lost_creates: bool = False  # a lost create may still be applied late: a second node
    watermark: int | None = None  # to be left behind: every contender up to this one is gone
    ledger: Ledger | None = None
    booked: int = 0

    def __post_init__(self) -> None:
        self.lock_path = self.lock_path or self.layout.lock(self.lock_name)

    @property
    def counter(self) -> str:
        """The counter path in which a node may exist."""
        return counter_path(self.lock_path, self.epoch)

    @property
    def nothing_left(self) -> bool:
        return self.state is State.IDLE and not self.lost_creates

    def creating(self, epoch: int) -> None:
        self.epoch, self.path = epoch, ""
        if self.book is not None and not self.booked:
            self.ledger = self.book(self, len(f"{self.counter}/{contender_name(self.kind.prefix, 0)}".encode()))
        self.state = State.CREATING

    def queued(self, created: Created, session_id: int | None) -> None:
        """``session_id``: the present one, which should be the node's: one number for all who hold."""
        owner = created.stat.ephemeralOwner
        self.state, self.path = State.QUEUED, created.path
        self.czxid, self.session_id = created.stat.czxid, session_id if session_id == owner else owner
        self.connection = None

    def granted(self) -> None:
        """There may be many thousands of these from now on: let go of what only an acquisition needs."""
        self.data, self.book = b"", None

    def gone(self) -> None:
        """Its node is not there any more. A lost create may still come, as long as the session lives."""
        self.state, self.path, self.watermark = State.IDLE, "", None
        if self.ledger is not None:
            self.ledger.cancel(self)

    def session_lost(self) -> None:
        """The session took every node of the attempt with it."""
        self.gone()
        self.lost_creates = False
