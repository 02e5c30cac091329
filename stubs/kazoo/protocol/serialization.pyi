from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..security import ACL
from .states import WatchedEvent

Watcher = Callable[[WatchedEvent], object]

class Auth(NamedTuple):
    auth_type: int
    scheme: str
    auth: str
    type: int  # of the class, in truth

class Close: ...

CloseInstance: Close

class Connect(NamedTuple):
    protocol_version: int
    last_zxid_seen: int
    time_out: int
    session_id: int
    passwd: bytes
    read_only: bool | None

class ReplyHeader(NamedTuple):
    xid: int
    zxid: int
    err: int

class SASL(NamedTuple):
    challenge: bytes

class Create(NamedTuple):
    path: str
    data: bytes
    acl: Sequence[ACL]
    flags: int

class Create2(NamedTuple):
    path: str
    data: bytes
    acl: Sequence[ACL]
    flags: int

class Delete(NamedTuple):
    path: str
    version: int

class Exists(NamedTuple):
    path: str
    watcher: Watcher | None

class GetData(NamedTuple):
    path: str
    watcher: Watcher | None

class GetChildren2(NamedTuple):
    path: str
    watcher: Watcher | None

class SetData(NamedTuple):
    path: str
    data: bytes
    version: int

class CheckVersion(NamedTuple):
    path: str
    version: int

class Sync(NamedTuple):
    path: str

class Transaction(NamedTuple):
    operations: Sequence[object]
