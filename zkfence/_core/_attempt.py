"""Attempt: one acquisition, from its first request to its grant or its leaving."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from ._layout import Layout
from ._operations import Created


class State(Enum):
    """How much of an attempt may be in ZooKeeper."""

    IDLE = auto()  # nothing
    CREATING = auto()  # a node may exist: a create was sent and its answer is not known
    QUEUED = auto()  # exactly the node ``path``


@dataclass(slots=True)
class Attempt:
    """What has to be known to leave without a trace, wherever the attempt is interrupted."""

    layout: Layout
    lock_name: str
    guid: str
    data: bytes  # the contender's node
    state: State = State.IDLE
    counter: str = ""  # the counter path in which a node may exist
    path: str = ""
    czxid: int = 0  # tells the own node from one at the same path, in a namespace that was made anew
    session_id: int = 0
    connection: int | None = None  # the node is watched, as long as the connection is this one
    lost_creates: bool = False  # a lost create may still be applied late: a second node

    @property
    def lock_path(self) -> str:
        return self.layout.lock(self.lock_name)

    def creating(self, counter: str) -> None:
        self.state, self.counter, self.path = State.CREATING, counter, ""

    def queued(self, created: Created) -> None:
        self.state, self.path = State.QUEUED, created.path
        self.czxid, self.session_id = created.stat.czxid, created.stat.ephemeral_owner
        self.connection = None

    def gone(self) -> None:
        """Its node is not there any more. A lost create may still come, as long as the session lives."""
        self.state, self.path = State.IDLE, ""

    def session_lost(self) -> None:
        """The session took every node of the attempt with it."""
        self.gone()
        self.lost_creates = False
