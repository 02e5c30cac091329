"""Distributed locks on ZooKeeper whose every grant carries a fencing token.

A lock tells workers who should act. It cannot stop a worker that was paused, lost its lease and wakes up too late:
only the storage can. ``zkfence_receivers`` is that half.
"""

from zkfence_receivers.words import InvalidName, InvalidStamp, InvalidToken, Mode, Stamp, Token, ZkfenceError

from ._client import Client, connect
from ._errors import (
    AccessDenied,
    EpochExhausted,
    ForeignNode,
    ForkedError,
    GrantReleased,
    LockError,
    LockLost,
    LockTimeout,
    NamespaceDamaged,
    NotConnected,
    ZooKeeperFailed,
)
from ._grant import Grant
from ._lock import FencedLock

__all__ = [
    "AccessDenied",
    "Client",
    "EpochExhausted",
    "FencedLock",
    "ForeignNode",
    "ForkedError",
    "Grant",
    "GrantReleased",
    "InvalidName",
    "InvalidStamp",
    "InvalidToken",
    "LockError",
    "LockLost",
    "LockTimeout",
    "Mode",
    "NamespaceDamaged",
    "NotConnected",
    "Stamp",
    "Token",
    "ZkfenceError",
    "ZooKeeperFailed",
    "connect",
]
