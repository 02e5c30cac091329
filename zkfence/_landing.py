"""What every driver does with a flight, whether it runs on threads or on an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kazoo.exceptions import NoAuthError

from ._core._operations import ConnectionLost, Create, Delete, Failure, Flight, Landed, Multi, SessionLost
from ._errors import AccessDenied

if TYPE_CHECKING:
    from ._session import Session


def lost(session: Session, flight: Flight) -> Landed:
    """The answer to a flight that was not sent, because there was no connection: kazoo would keep it until there is
    one, and its queue stalls at some 270 requests."""
    return Landed(session.now(), (ConnectionLost(),) * len(flight.operations))


def is_from_leader(result: object) -> bool:
    """Whether the answer to a quorum write proves that the session lived, be it with a refusal.

    Refusals are ordered by the leader as all writes are; but kazoo makes some answers of its own.
    """
    if isinstance(result, AccessDenied):
        return isinstance(result.__cause__, NoAuthError)
    if isinstance(result, Failure):
        return not isinstance(result, ConnectionLost | SessionLost)
    return not isinstance(result, Exception)


def prove(session: Session, session_id: int | None, flight: Flight, landed: Landed) -> None:
    """Tell the session of a quorum write that was acknowledged."""
    for operation, result in zip(flight.operations, landed.results, strict=True):
        if isinstance(operation, Create | Delete | Multi) and is_from_leader(result):
            if session.session_id == session_id:
                session.proved(landed.sent_at)
            return
