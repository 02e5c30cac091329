from collections.abc import Callable, Sequence
from typing import NamedTuple

class KazooState:
    CONNECTED: str
    SUSPENDED: str
    LOST: str

class KeeperState:
    AUTH_FAILED: str
    CLOSED: str
    CONNECTED: str
    CONNECTED_RO: str
    CONNECTING: str
    EXPIRED_SESSION: str

class EventType:
    CREATED: str
    DELETED: str
    CHANGED: str
    CHILD: str
    NONE: str

class WatchedEvent:
    type: str
    state: str
    path: str | None

class Callback(NamedTuple):
    type: str
    func: Callable[..., object]
    args: Sequence[object]

class ZnodeStat:
    czxid: int
    mzxid: int
    pzxid: int
    version: int
    numChildren: int
    ephemeralOwner: int
