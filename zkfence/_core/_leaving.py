"""Leaving: nothing of an attempt stays behind, and nothing else is touched."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from .._errors import AccessDenied
from ._attempt import Attempt, State
from ._layout import contenders_in, dump_watermark, fields_of
from ._operations import (
    Children,
    ConnectionLost,
    Created,
    Delete,
    Get,
    Listing,
    Multi,
    NoNode,
    SessionLost,
    SetData,
    Steps,
    Sync,
    ask,
    fly,
    land,
    read,
    read_many,
)
from ._surroundings import Surroundings

_BATCH = 100  # requests in one flight; kazoo's queue stalls above some 270


def own_nodes(attempt: Attempt, surroundings: Surroundings) -> Steps[list[Created]]:
    """The attempt's nodes in its counter path, the lowest number first: its GUID *and* owned by the present session.

    Behind a `Sync` that the leader has answered: a server that lags would hide a node whose create was applied. A node
    of an earlier session with the same GUID is about to vanish and is nobody's. Raises `SessionLost`.
    """
    found = yield from _nodes_of({attempt.guid}, attempt.counter, attempt.kind.prefix, surroundings)
    return [created for _, created in found]


def _nodes_of(
    guids: Collection[str], counter: str, prefix: str, surroundings: Surroundings
) -> Steps[list[tuple[str, Created]]]:
    """Of several attempts at once: see `own_nodes`. Each node with its GUID."""
    session_id = surroundings.session_id
    if session_id is None:
        raise SessionLost
    _, answer = yield from read(Sync(counter), Children(counter))
    if isinstance(answer, NoNode):
        return []
    listing: Listing = land(answer)
    # A closing number stands last in the queue, a negative one too.
    contenders = sorted(contenders_in(listing.names), key=lambda each: (each.number < 0, each.number))
    paths = [f"{counter}/{each.name}" for each in contenders if each.prefix == prefix]
    nodes = yield from read_many([Get(path) for path in paths])
    found: list[tuple[str, Created]] = []
    for path, node in zip(paths, nodes, strict=True):
        if isinstance(node, NoNode):
            continue
        owner, guid = land(node).stat.ephemeralOwner, guid_of(land(node).data)
        if owner == session_id and guid in guids:
            assert guid is not None
            found.append((guid, Created(path, land(node).stat)))
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
        yield from delete_surely(attempt.path, attempt.czxid, watched=watched, along=_watermark(attempt))
    if attempt.state is State.CREATING or attempt.lost_creates:
        for created in (yield from own_nodes(attempt, surroundings)):
            yield from delete_surely(created.path, created.stat.czxid)
    attempt.gone()
    attempt.lost_creates = False


def leave_all(attempts: Sequence[Attempt], surroundings: Surroundings) -> Steps[None]:
    """`leave` for up to a hundred attempts, in a few round trips: when a crowd is cancelled, or times out, nobody
    behind it should have to wait for one after another. Raises `SessionLost`."""
    here = [each for each in attempts if each.state is State.QUEUED and each.session_id == surroundings.session_id]
    unwatched = [each for each in here if each.connection != surroundings.connection]
    nodes = yield from read_many([Get(each.path) for each in unwatched])
    gone = {
        id(each)
        for each, node in zip(unwatched, nodes, strict=True)
        if isinstance(node, NoNode) or land(node).stat.czxid != each.czxid
    }
    doomed = [(each, each.path) for each in here if id(each) not in gone]
    doubtful: defaultdict[tuple[str, str], dict[str, Attempt]] = defaultdict(dict)
    for each in attempts:
        if each.state is State.CREATING or each.lost_creates:
            doubtful[each.counter, each.kind.prefix][each.guid] = each
    for (counter, prefix), by_guid in doubtful.items():
        found = yield from _nodes_of(by_guid, counter, prefix, surroundings)
        doomed += [(by_guid[guid], created.path) for guid, created in found if created.path != by_guid[guid].path]
    failed: set[int] = set()
    for start in range(0, len(doomed), _BATCH):
        batch = doomed[start : start + _BATCH]
        landed = yield from fly(*(_deletion(each, path) for each, path in batch))
        for (each, _), result in zip(batch, landed.results, strict=True):
            if isinstance(result, SessionLost):
                raise SessionLost
            if isinstance(result, Exception) and not isinstance(result, NoNode):
                failed.add(id(each))
    for each in attempts:
        if id(each) in failed:
            yield from leave(each, surroundings)
        each.gone()
        each.lost_creates = False


def _deletion(attempt: Attempt, path: str) -> Delete | Multi:
    along = _watermark(attempt) if path == attempt.path else None
    return Delete(path) if along is None else Multi((Delete(path), along))


def _watermark(attempt: Attempt) -> SetData | None:
    """What a holder writes down when it leaves."""
    return None if attempt.watermark is None else SetData(attempt.counter, dump_watermark(attempt.watermark))
