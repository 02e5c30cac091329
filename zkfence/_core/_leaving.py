"""Leaving: nothing of an attempt stays behind, and nothing else is touched."""

from __future__ import annotations

from .._errors import AccessDenied
from ._attempt import Attempt, State
from ._layout import contenders_in, dump_watermark, fields_of
from ._operations import (
    Children,
    ConnectionLost,
    Created,
    Delete,
    Get,
    Multi,
    NoNode,
    SessionLost,
    SetData,
    Steps,
    Sync,
    ask,
    land,
    read,
    read_many,
)
from ._surroundings import Surroundings


def own_nodes(attempt: Attempt, surroundings: Surroundings) -> Steps[list[Created]]:
    """The attempt's nodes in its counter path, the lowest number first: its GUID *and* owned by the present session.

    Behind a `Sync` that the leader has answered: a server that lags would hide a node whose create was applied. A node
    of an earlier session with the same GUID is about to vanish and is nobody's. Raises `SessionLost`.
    """
    session_id = surroundings.session_id
    if session_id is None:
        raise SessionLost
    _, listing = yield from read(Sync(attempt.counter), Children(attempt.counter))
    if isinstance(listing, NoNode):
        return []
    # A closing number stands last in the queue, a negative one too.
    contenders = sorted(contenders_in(land(listing).names), key=lambda each: (each.number < 0, each.number))
    paths = [f"{attempt.counter}/{each.name}" for each in contenders if each.prefix == attempt.kind.prefix]
    nodes = yield from read_many([Get(path) for path in paths])
    found: list[Created] = []
    for path, node in zip(paths, nodes, strict=True):
        if isinstance(node, NoNode):
            continue
        owner = land(node).stat.ephemeralOwner
        if owner == session_id and guid_of(land(node).data) == attempt.guid:
            found.append(Created(path, land(node).stat))
    return found


def guid_of(data: bytes) -> str | None:
    """The GUID in a contender's data; ``None`` where somebody else made the node."""
    guid = fields_of(data).get("guid")
    return guid if isinstance(guid, str) else None


def delete_surely(path: str, czxid: int, *, watched: bool = False, along: SetData | None = None) -> Steps[None]:
    """Delete this very node, until an answer says that it is gone. Raises `SessionLost`: then it goes by itself.

    ``along`` is done in the same transaction, or not at all: for a node that is gone already, or can only be deleted.

    A namespace that was deleted and made anew has other nodes at the same paths. ``watched``: the node was watched all
    the time, so it can be no other one; otherwise it is looked at first. (In the one round trip between look and
    deletion it could still be exchanged: ZooKeeper cannot delete by creation id.)
    """
    while True:
        if not watched:
            (node,) = yield from read(Get(path))
            if isinstance(node, NoNode) or land(node).stat.czxid != czxid:
                return
        try:
            yield from ask(Delete(path) if along is None else Multi((Delete(path), along)))
        except ConnectionLost:
            watched = False
        except NoNode:
            return
        except AccessDenied:
            if along is None:
                raise
            along = None
        else:
            return


def leave(attempt: Attempt, surroundings: Surroundings) -> Steps[None]:
    """Remove every node of the attempt. Raises `SessionLost` where the session was over first: they go with it."""
    if attempt.state is State.QUEUED and attempt.session_id == surroundings.session_id:
        watched = attempt.connection == surroundings.connection
        along = None
        if attempt.watermark is not None:
            along = SetData(attempt.counter, dump_watermark(attempt.watermark))
        yield from delete_surely(attempt.path, attempt.czxid, watched=watched, along=along)
    if attempt.state is State.CREATING or attempt.lost_creates:
        for created in (yield from own_nodes(attempt, surroundings)):
            yield from delete_surely(created.path, created.stat.czxid)
    attempt.gone()
    attempt.lost_creates = False
