"""Failures: redis-py's errors in our words."""

from __future__ import annotations

import re
from typing import Final

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from ..words import ReceiverError, StoreFailed, UnsafeStore

_CLUSTER: Final = "the server is a node of a cluster, which this receiver does not support"

# The server's error codes with which it says that it has done nothing.
_DID_NOTHING: Final = {
    "ASK": _CLUSTER,
    "BUSY": "another script keeps the server busy; look for it, SCRIPT KILL ends it",
    "CLUSTERDOWN": "the server's cluster is down",
    "CROSSSLOT": _CLUSTER,
    "LOADING": "the server is still loading its data; try again when it is up",
    "MASTERDOWN": "the server is a replica that has lost its master; connect to the master",
    "MISCONF": "the server cannot save its data and takes no writes; its log says why (a full disk?)",
    "MOVED": _CLUSTER,
    "NOAUTH": "the server wants a password; give the client one",
    "NOPERM": "the client's user may not do this. It needs EVAL, EVALSHA, EXISTS, TYPE, GET, SET, DEL, HMGET, HGETALL, "
    "HSET and HDEL on the receiver's keys; better INFO and CONFIG GET too",
    "NOREPLICAS": "the server has fewer replicas than its min-replicas-to-write and takes no writes",
    "OOM": "the server is at maxmemory; give it more, or remove something",
    "READONLY": "the server is a replica; connect to the master",
    "TRYAGAIN": _CLUSTER,
    "WRONGPASS": "the server does not know the client's user or password",
    "WRONGTYPE": "a key has another type than the receiver's",
}
# Some servers put the code into the middle of a script's message, or have words of their own for it, and redis-py cuts
# some codes off.
_CODE: Final = re.compile(r"\b(" + "|".join(_DID_NOTHING) + r")\b")
_PHRASES: Final = {
    "The user executing the script can't": "NOPERM",
    "ACL failure in script": "NOPERM",
    "unauthenticated": "NOAUTH",
}
_CLASSES: Final = {
    AuthenticationError: "NOAUTH",
    BusyLoadingError: "LOADING",
    NoPermissionError: "NOPERM",
    OutOfMemoryError: "OOM",
    ReadOnlyError: "READONLY",
}
_HALF_DONE: Final = "HALFDONE"


def failure(resource: str, error: RedisError, *, unclear: bool) -> ReceiverError | None:
    """The error to raise where it is certain that nothing was changed, ``None`` where it is not.

    ``unclear``: whether some copy of the request was sent and not answered.
    """
    text = str(error)
    if unclear or _HALF_DONE in text:
        return None
    if code := _code(error, text):
        kind = UnsafeStore if code == "READONLY" else StoreFailed
        return kind(resource, f"{resource!r}: {_DID_NOTHING[code]} ({text})")
    if isinstance(error, ResponseError):
        return None
    return StoreFailed(resource, f"{resource!r}: the server could not be reached and nothing was sent ({text})")


def _code(error: RedisError, text: str) -> str | None:
    for kind, code in _CLASSES.items():
        if type(error) is kind:
            return code
    for phrase, code in _PHRASES.items():
        if phrase in text:
            return code
    found = _CODE.search(text)
    return found and found[1]
