"""Distributed locks on ZooKeeper whose every grant carries a fencing token.

A lock tells workers who should act. It cannot stop a worker that was paused, lost its lease and wakes up too late:
only the storage can. ``zkfence_receivers`` is that half.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from zkfence_receivers.words import InvalidName, InvalidStamp, InvalidToken, Mode, Stamp, Token, ZkfenceError

from ._errors import (
    AccessDenied,
    EpochExhausted,
    ForeignNode,
    ForkedError,
    GrantReleased,
    LockError,
    LockLost,
    LockTimeout,
    MissingChroot,
    MixedKinds,
    NamespaceDamaged,
    NotConnected,
    RepairRefused,
    TooManyLocks,
    WouldDeadlock,
    ZooKeeperFailed,
)

if TYPE_CHECKING:
    from . import aio as aio
    from ._client import Client, connect
    from ._core._contender import Contender
    from ._grant import Grant
    from ._lock import FencedLock, FencedReadLock, FencedSemaphore, FencedWriteLock
    from ._signals import exit_on_signals

__all__ = [
    "AccessDenied",
    "Client",
    "Contender",
    "EpochExhausted",
    "FencedLock",
    "FencedReadLock",
    "FencedSemaphore",
    "FencedWriteLock",
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
    "MissingChroot",
    "MixedKinds",
    "Mode",
    "NamespaceDamaged",
    "NotConnected",
    "RepairRefused",
    "Stamp",
    "Token",
    "TooManyLocks",
    "WouldDeadlock",
    "ZkfenceError",
    "ZooKeeperFailed",
    "connect",
    "exit_on_signals",
]

# What needs kazoo is imported when it is asked for: everybody's pytest loads zkfence's plugin, and must neither wait
# for kazoo nor have the ssl module imported before gevent could patch it.
_ON_KAZOO = {
    "Client": "_client",
    "Contender": "_core._contender",
    "FencedLock": "_lock",
    "FencedReadLock": "_lock",
    "FencedSemaphore": "_lock",
    "FencedWriteLock": "_lock",
    "Grant": "_grant",
    "connect": "_client",
    "exit_on_signals": "_signals",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name == "aio":
        return import_module(".aio", __name__)
    if name in _ON_KAZOO:
        return getattr(import_module(f".{_ON_KAZOO[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
