"""What the kernel has received for the clients of a server: of every contender in the same way, and without slowing it.

The kernel tells the TCP_INFO of all connections to a port on a netlink socket (sock_diag(7), ``linux/inet_diag.h``),
whichever process has them.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Final, TypeAlias

Received: TypeAlias = dict[int, int]
"""Bytes that each connection has received so far, by the client's port."""

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLMSG_ERROR: Final = 2
_NLMSG_DONE: Final = 3
_REQUEST_DUMP: Final = 0x1 | 0x300
_INET_DIAG_INFO: Final = 2
_ESTABLISHED: Final = 1 << 1

_HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, pid
_ASKED: Final = struct.Struct("=BBBxI")  # inet_diag_req_v2: family, protocol, extensions, states
_PORTS: Final = struct.Struct(
    "!HH"
)  # inet_diag_sockid begins with both ports; the kernel selects by those that we give
_REST_OF_ID: Final = bytes(44)
_ID_AT: Final = 4  # in inet_diag_msg
_ATTRIBUTES_AT: Final = 72  # behind inet_diag_msg
_ATTRIBUTE: Final = struct.Struct("=HH")
_BYTES_RECEIVED: Final = struct.Struct("=Q")
_BYTES_RECEIVED_AT: Final = 128  # in tcp_info


def received_from(port: int) -> Received:
    """Of all established connections of this machine to ``port``."""
    # Java's sockets are IPv6 ones, also where they talk IPv4.
    return {own: count for family in (socket.AF_INET, socket.AF_INET6) for own, count in _dump(family, port)}


def _dump(family: int, port: int) -> Iterator[tuple[int, int]]:
    body = _ASKED.pack(family, socket.IPPROTO_TCP, 1 << (_INET_DIAG_INFO - 1), _ESTABLISHED)
    body += _PORTS.pack(0, port) + _REST_OF_ID
    request = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.send(request)
        while True:
            for kind, message in _messages(kernel.recv(1 << 18)):
                if kind == _NLMSG_DONE:
                    return
                if kind == _NLMSG_ERROR:
                    raise OSError("the kernel does not tell what connections have received")
                yield _connection(message)


def _connection(message: bytes) -> tuple[int, int]:
    own, _ = _PORTS.unpack_from(message, _ID_AT)
    at = _ATTRIBUTES_AT
    while at < len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        if kind == _INET_DIAG_INFO:
            (count,) = _BYTES_RECEIVED.unpack_from(message, at + _ATTRIBUTE.size + _BYTES_RECEIVED_AT)
            return own, count
        at += _aligned(length)
    raise OSError("the kernel tells nothing about a connection")


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        yield kind, data[at + _HEADER.size : at + length]
        at += _aligned(length)


def _aligned(length: int) -> int:
    return (length + 3) & ~3
