"""What every driver does with a flight, whether it runs on threads or on an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._core._operations import ConnectionLost, Create, Delete, Failure, Flight, Landed, Multi, SessionLost

if TYPE_CHECKING:
    from ._session import Session


def lost(session: Session, flight: Flight) -> Landed:
    """The answer to a flight that was not sent, because there was no connection: kazoo would keep it until there is
    one, and its queue stalls at some 270 requests."""
    return Landed(session.now(), (ConnectionLost(),) * len(flight.operations))


def prove(session: Session, session_id: int | None, flight: Flight, landed: Landed) -> None:
    """Tell the session of a quorum write that was acknowledged, be it with a refusal that the leader has made."""
    for operation, result in zip(flight.operations, landed.results, strict=True):
        if isinstance(operation, Create | Delete | Multi):
            answered = not isinstance(result, Exception) or isinstance(result, Failure)
            if answered and not isinstance(result, ConnectionLost | SessionLost):
                if session.session_id == session_id:
                    session.proved(landed.sent_at)
                return
