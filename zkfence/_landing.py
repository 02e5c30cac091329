"""What every driver does, whether it runs on threads or on an event loop."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from kazoo.exceptions import NoAuthError

from ._core._operations import ConnectionLost, Create, Delete, Failure, Flight, Landed, Multi, SessionLost
from ._errors import AccessDenied

if TYPE_CHECKING:
    from ._session import Session

_JITTER: Final = 0.004  # seconds; doubles with each attempt
_JITTER_MOST: Final = 0.5


class DeadlinePassed(Exception):
    """The deadline of a run has passed; what is in flight stays in flight."""


def pause(attempt: int) -> float:
    """For how many seconds a `Jitter` lasts."""
    return random.uniform(0, min(_JITTER * 2 ** min(attempt, 10), _JITTER_MOST))  # noqa: S311  # rivals, not adversaries


def seconds_until(deadline: float | None, now: float) -> float | None:
    """``None`` where there is no deadline. Raises `DeadlinePassed`."""
    if deadline is None:
        return None
    if deadline <= now:
        raise DeadlinePassed
    return deadline - now


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
