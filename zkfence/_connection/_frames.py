"""Frames: the messages in the stream that a server sends."""

from __future__ import annotations

import struct
from typing import Final

from kazoo.exceptions import ConnectionDropped

_LENGTH: Final = struct.Struct("!i")
_LEAST: Final = 16  # the header of a reply: xid, zxid, err


class Frames:
    """Finds the messages in a stream that comes in pieces of any size. Each is a length of four bytes and so many
    bytes."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0  # of all pieces together
        self._enough = _LENGTH.size  # from so many bytes on there is something to find

    def find(self, piece: bytes) -> tuple[bytes, list[int]]:
        """Bytes, and where in them a complete message begins (behind its length), in order.

        A large message is put together once, when all of it is there. Raises kazoo's ConnectionDropped for what no
        ZooKeeper server sends.
        """
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size < self._enough:
            return b"", []
        data = piece if len(self._pieces) == 1 else b"".join(self._pieces)
        beginnings = []
        position, size = 0, self._size
        self._enough = _LENGTH.size
        while size - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, position)
            if length < _LEAST:
                raise ConnectionDropped(f"invalid server response: a message of {length} bytes")
            beginning = position + _LENGTH.size
            if size - beginning < length:
                self._enough = _LENGTH.size + length
                break
            beginnings.append(beginning)
            position = beginning + length
        self._pieces = [data[position:]] if position < size else []
        self._size = size - position
        return data, beginnings
