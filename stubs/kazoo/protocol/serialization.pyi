from collections.abc import Sequence
from typing import NamedTuple

from ..security import ACL

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

class Sync(NamedTuple):
    path: str

class Create2(NamedTuple):
    path: str
    data: bytes
    acl: Sequence[ACL]
    flags: int

class Delete(NamedTuple):
    path: str
    version: int

class GetData(NamedTuple):
    path: str
    watcher: object
