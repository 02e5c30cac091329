"""Receivers: storage that refuses a paused lock holder that wakes up too late.

A receiver compares the fencing token of every request with a durable high-water mark, and changes the data and the
mark in one atomic step, or refuses. Claim a resource with the grant of a lock, then read and write through the handle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._file import FileReceiver
from ._memory import MemoryReceiver
from ._receiver import Handle, Receiver, Reply
from .words import (
    AlreadyApplied,
    InvalidName,
    InvalidStamp,
    InvalidToken,
    Mark,
    MarkCorrupt,
    Mode,
    OutcomeUnknown,
    OutOfOrder,
    ReadOnlyStamp,
    ReceiverError,
    Refused,
    StaleToken,
    Stamp,
    StoreBusy,
    StoreFailed,
    Token,
    TokenCollision,
    TokenRegressed,
    Unfenced,
    UnsafeStore,
    UnverifiedStore,
    WrongLock,
    WrongNamespace,
    ZkfenceError,
    admit,
)

if TYPE_CHECKING:
    from ._redis import RedisReceiver

__all__ = [
    "AlreadyApplied",
    "FileReceiver",
    "Handle",
    "InvalidName",
    "InvalidStamp",
    "InvalidToken",
    "Mark",
    "MarkCorrupt",
    "MemoryReceiver",
    "Mode",
    "OutOfOrder",
    "OutcomeUnknown",
    "ReadOnlyStamp",
    "Receiver",
    "ReceiverError",
    "RedisReceiver",
    "Refused",
    "Reply",
    "StaleToken",
    "Stamp",
    "StoreBusy",
    "StoreFailed",
    "Token",
    "TokenCollision",
    "TokenRegressed",
    "Unfenced",
    "UnsafeStore",
    "UnverifiedStore",
    "WrongLock",
    "WrongNamespace",
    "ZkfenceError",
    "admit",
]


def __getattr__(name: str) -> object:
    # Stores whose client library is an extra are imported when they are asked for.
    if name == "RedisReceiver":
        from ._redis import RedisReceiver

        return RedisReceiver
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
