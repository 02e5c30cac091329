"""The floor: what every lock recipe of two round trips has to send and to wait for, with no client around it.

It is no lock: it waits for nobody, watches nothing and survives nothing. Each thread has a connection of its own.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType

from ._crowd import LockClient
from ._wire import Connection


class RawLocks(LockClient):
    def __init__(self, hosts: str, session_timeout: float) -> None:
        self._hosts = hosts
        self._session_timeout = session_timeout
        self._connections: list[Connection] = []

    def lock(self, name: str) -> AbstractContextManager[object]:
        host, _, port = self._hosts.partition(":")
        connection = Connection(host, int(port), self._session_timeout)
        self._connections.append(connection)
        return _RawLock(connection, f"/bench-raw-{name}".encode())

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


class _RawLock:
    def __init__(self, connection: Connection, parent: bytes) -> None:
        self._connection = connection
        self._parent = parent
        self._own = b""
        connection.ensure(parent)

    def __enter__(self) -> None:
        self._own = self._connection.stand_in_line(self._parent)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.delete(self._own)
