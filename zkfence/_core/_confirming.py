"""Confirming: whether a grant surely holds its lock, at a moment after it was asked."""

from __future__ import annotations

from ._operations import Check, Get, Multi, Node, Steps, fly
from ._surroundings import Surroundings


def is_surely_held(path: str, czxid: int, session_id: int, surroundings: Surroundings) -> Steps[bool]:
    """Whether the node ``path`` of a grant was there at some moment after this began: so long, nobody else can have
    had a larger token. ``False`` where that is not certain. Asks once, and never again.

    The check is a quorum write: the leader commits it, and a server that lags or was deposed cannot. It knows nothing
    of creation ids, so the node is read behind it: a session is FIFO, so the read sees everything up to the check. The
    very node, then, was there when the check was committed, and not another one that was made at its path since. A
    wiped ensemble may issue a creation id again, but not to a session that it does not know.
    """
    landed = yield from fly(Multi((Check(path),)), Get(path))
    checked, node = landed.results
    return (
        not isinstance(checked, Exception)
        and isinstance(node, Node)
        and node.stat.czxid == czxid
        and surroundings.session_id == session_id
    )
