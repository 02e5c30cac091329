"""Connection: ZooKeeper's protocol on a blocking socket, as much of it as the floor needs (see zookeeper.jute)."""

from __future__ import annotations

import socket
import struct
from typing import Final

_CREATE: Final = 1
_DELETE: Final = 2
_GET_DATA: Final = 4
_CREATE2: Final = 15
_CLOSE: Final = -11

_PERSISTENT: Final = 0
_EPHEMERAL_SEQUENTIAL: Final = 3
_NODE_EXISTS: Final = -110

_LENGTH: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">iii")  # length of what follows, xid, operation
_REPLY: Final = struct.Struct(">iqi")  # xid, zxid, error


def _text(text: bytes) -> bytes:
    return _LENGTH.pack(len(text)) + text


_ANYONE: Final = struct.pack(">ii", 1, 31) + _text(b"world") + _text(b"anyone")  # one entry, all permissions


class Connection:
    """One session. It sends no pings: it is for those who are never silent."""

    def __init__(self, host: str, port: int, session_timeout: float) -> None:
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._input = self._socket.makefile("rb")
        self._xid = 0
        connect = struct.pack(">iqiq", 0, 0, round(session_timeout * 1000), 0) + _text(bytes(16)) + b"\0"
        self._socket.sendall(_text(connect))
        self._receive()

    def close(self) -> None:
        self._socket.sendall(self._request(_CLOSE, b""))
        self._input.close()
        self._socket.close()

    def ensure(self, path: bytes) -> None:
        """A persistent node without data."""
        body = _text(path) + _text(b"") + _ANYONE + _LENGTH.pack(_PERSISTENT)
        self._socket.sendall(self._request(_CREATE, body))
        error, _ = self._reply()
        if error not in (0, _NODE_EXISTS):
            raise OSError(f"ZooKeeper answered {error}")

    def stand_in_line(self, parent: bytes) -> bytes:
        """Create a contender and read its parent, in one flight. Returns the contender's path."""
        create = _text(parent + b"/x-") + _text(b"") + _ANYONE + _LENGTH.pack(_EPHEMERAL_SEQUENTIAL)
        read = _text(parent) + b"\0"  # no watch
        self._socket.sendall(self._request(_CREATE2, create) + self._request(_GET_DATA, read))
        created = self._result()
        self._result()
        (length,) = _LENGTH.unpack_from(created)
        return created[4 : 4 + length]

    def delete(self, path: bytes) -> None:
        self._socket.sendall(self._request(_DELETE, _text(path) + _LENGTH.pack(-1)))
        self._result()

    def _request(self, operation: int, body: bytes) -> bytes:
        self._xid += 1
        return _REQUEST.pack(8 + len(body), self._xid, operation) + body

    def _result(self) -> bytes:
        error, body = self._reply()
        if error:
            raise OSError(f"ZooKeeper answered {error}")
        return body

    def _reply(self) -> tuple[int, bytes]:
        reply = self._receive()
        return _REPLY.unpack_from(reply)[2], reply[_REPLY.size :]

    def _receive(self) -> bytes:
        (length,) = _LENGTH.unpack(self._read(4))
        return self._read(length)

    def _read(self, size: int) -> bytes:
        data = self._input.read(size)
        if len(data) < size:
            raise ConnectionError("ZooKeeper has closed the connection")
        return data
