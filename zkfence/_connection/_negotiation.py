"""The session timeout that the servers have agreed to; kazoo learns it and does not tell."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final
from weakref import WeakKeyDictionary

from kazoo.client import KazooClient
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Connect

_log: Final = logging.getLogger("zkfence")
_READ_SHARE: Final = 2.0 / 3.0  # kazoo's read timeout, as a share of the negotiated one


class Negotiation:
    """What the servers say to the session timeout that one client wishes."""

    def __init__(self, *, warn: bool = False) -> None:
        self.timeout: float | None = None
        self._warn = warn
        self._told: set[int] = set()

    def agreed(self, wish: int, answer: int) -> None:
        """Both in milliseconds, as they go over the wire."""
        self.timeout = answer / 1000
        if self._warn and answer != wish and answer not in self._told:
            self._told.add(answer)
            _log.warning(
                "ZooKeeper made the session timeout %g s instead of %g s: its minSessionTimeout and maxSessionTimeout "
                "allow no other",
                answer / 1000,
                wish / 1000,
            )


_negotiations: Final[WeakKeyDictionary[KazooClient, Negotiation]] = WeakKeyDictionary()


def follow(client: KazooClient, negotiation: Negotiation) -> None:
    """Tell ``negotiation`` at every connect of the client's present connection, before anybody hears of it."""
    _negotiations[client] = negotiation
    connection = client._connection
    invoke: Callable[..., Any] = connection._invoke

    def listening(timeout: float, request: object, xid: int | None = None) -> Any:
        answer = invoke(timeout, request, xid)
        if isinstance(request, Connect) and answer[0].time_out > 0:  # 0: this session is expired
            negotiation.agreed(request.time_out, answer[0].time_out)
        return answer

    connection._invoke = listening  # type: ignore[method-assign]


def negotiated_timeout_of(client: KazooClient) -> float | None:
    """The session timeout, in seconds, that the servers have agreed to with ``client``; ``None`` where it is unknown.

    Exact for every client of `zkfence.connect` since it was first connected. Kazoo's own client does not keep it: it
    is read from the running loop of its connection where that can be done, and told at each connect from the first
    call of this function on.
    """
    negotiation = _negotiations.get(client)
    if negotiation is None:
        negotiation = Negotiation()
        follow(client, negotiation)
        present = _from_loop(client._connection)
        if negotiation.timeout is None:  # it has not been told in this moment
            negotiation.timeout = present
    return negotiation.timeout


def _from_loop(connection: ConnectionHandler) -> float | None:
    """What the loop of a connection that was made before knows in a local variable."""
    thread = getattr(connection._connection_routine, "ident", None)
    frame: FrameType | None = sys._current_frames().get(thread) if isinstance(thread, int) else None
    inside = None
    while frame is not None and frame.f_code is not ConnectionHandler._connect_attempt.__code__:
        inside, frame = frame, frame.f_back
    # In a call from the loop, the variable is in seconds; while it is being made, it is in milliseconds.
    if frame is None or inside is None:
        return None
    read_timeout = frame.f_locals.get("read_timeout")
    if not isinstance(read_timeout, float):
        return None
    return round(read_timeout / _READ_SHARE, 3)
