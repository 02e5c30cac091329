"""SessionTimeout: how long a session may be silent, from whoever knows it best."""

from __future__ import annotations

from typing import NamedTuple

from kazoo.client import KazooClient

from ._connection._negotiation import negotiated_timeout_of


class SessionTimeout(NamedTuple):
    seconds: float
    is_verified: bool  # it is what the servers have granted, and not only what they were asked for


def session_timeout_of(client: KazooClient, told: float | None) -> SessionTimeout:
    """``told`` is what the user says that the servers grant, in seconds.

    Servers clamp the timeout that they are asked for, and kazoo keeps the answer to itself.
    """
    negotiated = negotiated_timeout_of(client)
    if negotiated is not None:
        return SessionTimeout(negotiated, is_verified=True)
    if told is not None:
        return SessionTimeout(told, is_verified=True)
    return SessionTimeout(float(client._session_timeout) / 1000, is_verified=False)
