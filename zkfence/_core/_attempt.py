"""Attempt: one contender, from its first request to its grant or its leaving."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

from ._kinds import EXCLUSIVE, Kind
from ._layout import Layout, contender_name
from ._operations import Created


class State(Enum):
    """How much of an attempt may be in ZooKeeper."""

    IDLE = auto()  # nothing
    CREATING = auto()  # a node may exist: a create was sent and its answer is not known
    QUEUED = auto()  # exactly the node ``path``


class Booking(Protocol):
    """Room for the attempt's node in its session."""

    def cancel(self) -> None: ...


@dataclass(slots=True)
class Attempt:
    """What has to be known to leave without a trace, wherever the attempt is interrupted."""

    layout: Layout
    lock_name: str
    guid: str
    data: bytes  # the contender's node
    kind: Kind = EXCLUSIVE
    book: Callable[[str, int], Booking] | None = None  # room for the path of a lock's node; raises if there is none
    lock_path: str = field(init=False)
    state: State = State.IDLE
    counter: str = ""  # the counter path in which a node may exist
    path: str = ""
    czxid: int = 0  # tells the own node from one at the same path, in a namespace that was made anew
    session_id: int = 0
    connection: int | None = None  # the node is watched, as long as the connection is this one
    lost_creates: bool = False  # a lost create may still be applied late: a second node
    watermark: int | None = None  # to be left behind: every contender up to this one is gone
    booking: Booking | None = None

    def __post_init__(self) -> None:
        self.lock_path = self.layout.lock(self.lock_name)

    @property
    def nothing_left(self) -> bool:
        return self.state is State.IDLE and not self.lost_creates

    def creating(self, counter: str) -> None:
        if self.book is not None and self.booking is None:
            self.booking = self.book(self.lock_name, len(f"{counter}/{contender_name(self.kind.prefix, 0)}"))
        self.state, self.counter, self.path = State.CREATING, counter, ""

    def queued(self, created: Created) -> None:
        self.state, self.path = State.QUEUED, created.path
        self.czxid, self.session_id = created.stat.czxid, created.stat.ephemeralOwner
        self.connection = None

    def gone(self) -> None:
        """Its node is not there any more. A lost create may still come, as long as the session lives."""
        self.state, self.path, self.watermark = State.IDLE, "", None
        booking, self.booking = self.booking, None
        if booking is not None:
            booking.cancel()

    def session_lost(self) -> None:
        """The session took every node of the attempt with it."""
        self.gone()
        self.lost_creates = False
