"""Counters: what a ZooKeeper server numbers the next sequential child of a node with, set to any value.

No request can do that: 2**31 children would have to be made. It is the node's ``cversion``, so it is changed in the
server's snapshot on disk, while the server is down.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from zkfence.testing import LocalEnsemble, LocalNode

# The format: FileSnap, SerializeUtils and DataTree.serialize in ZooKeeper's sources; everything is big-endian.
_MAGIC: Final = b"ZKSN"
_VERSION: Final = 2
_STAT: Final = struct.Struct(">qqqqiiiqq")  # czxid mzxid ctime mtime version cversion aversion ephemeralOwner pzxid
_CVERSION_AT: Final = struct.calcsize(">qqqqi")
_SESSION_SIZE: Final = struct.calcsize(">qi")
_END: Final = "/"  # instead of a path: the root's own path is empty in a snapshot
_SEAL: Final = struct.Struct(">qi1s")  # the Adler-32 of all before it, and a text of one character


def set_counters(ensemble: LocalEnsemble, counters: Mapping[str, int]) -> None:
    """Let the next sequential child of each path have this number. Restarts the one server of the ensemble.

    Sessions outlive it, as they outlive any restart. Raises `KeyError` for a path that is not there.
    """
    (node,) = ensemble.nodes
    path = _whole_snapshot(node)
    snapshot = Snapshot(path.read_bytes())
    for name, number in counters.items():
        snapshot.set_cversion(name, number)
    path.write_bytes(snapshot.sealed())
    ensemble.restart()


def _whole_snapshot(node: LocalNode) -> Path:
    """Stop the server with a snapshot that has everything, and no transaction after it.

    It takes one whenever it starts, after it has read its log, and starts a new log file for what comes later.
    """
    folder = node.folder / "data" / "version-2"
    for _ in range(10):
        node.restart()
        node.wait_until_serving()
        node.kill()
        newest = max(folder.glob("snapshot.*"), key=_zxid)
        if all(_zxid(log) <= _zxid(newest) for log in folder.glob("log.*")):
            return newest
        # A session has ended in that moment, or a client is at work.
    raise AssertionError("the server is never idle: something else is using it")


def _zxid(file: Path) -> int:
    return int(file.suffix.removeprefix("."), 16)


class Snapshot:
    """The bytes of a ZooKeeper snapshot (3.5 to 3.9, not compressed), and where each node's stat is in them."""

    def __init__(self, data: bytes) -> None:
        self._data = bytearray(data)
        self._at = 0
        self._stats: dict[str, int] = dict(self._walk())
        self._end = self._at

    def cversion(self, path: str) -> int:
        """The number of the node's next sequential child."""
        stat = _STAT.unpack_from(self._data, self._stats[path])
        return int(stat[5])

    def set_cversion(self, path: str, value: int) -> None:
        struct.pack_into(">i", self._data, self._stats[path] + _CVERSION_AT, value)

    def sealed(self) -> bytes:
        """The whole file again, with its checksum. What newer servers write behind it, a digest of the tree and the
        last transaction, is left out: it would not be true any more, and they read the files of older ones too."""
        body = bytes(self._data[: self._end])
        return body + _SEAL.pack(zlib.adler32(body), 1, b"/")

    def _walk(self) -> Iterator[tuple[str, int]]:
        """Every node's path, and where its stat begins."""
        if self._data[:4] != _MAGIC or self._int(4) != _VERSION:
            raise ValueError("this is no snapshot, or a compressed one")
        self._at = 16  # behind the id of the database
        self._skip(self._next_int() * _SESSION_SIZE)
        for _ in range(self._next_int()):  # the table of ACLs
            self._skip(8)
            for _ in range(self._next_int()):
                self._skip(4)
                self._next_text()
                self._next_text()
        while (path := self._next_text()) != _END:
            self._skip(max(self._next_int(), 0))  # the node's data; -1 for none
            self._skip(8)  # its number in the table of ACLs
            yield path or "/", self._at
            self._skip(_STAT.size)

    def _int(self, at: int) -> int:
        value: int = struct.unpack_from(">i", self._data, at)[0]
        return value

    def _next_int(self) -> int:
        self._skip(4)
        return self._int(self._at - 4)

    def _next_text(self) -> str:
        size = self._next_int()
        self._skip(size)
        return self._data[self._at - size : self._at].decode()

    def _skip(self, size: int) -> None:
        self._at += size
