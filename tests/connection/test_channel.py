"""The socket to a server."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator

import pytest

from zkfence._connection._channel import Channel


@pytest.fixture
def pair() -> Iterator[tuple[Channel, socket.socket]]:
    """A channel, and the server at its other end."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    theirs.settimeout(10)
    channel = Channel(ours)
    channel.setblocking(False)
    with contextlib.closing(channel), theirs:
        yield channel, theirs


def test_what_is_sent_leaves_with_the_flush(pair: tuple[Channel, socket.socket]) -> None:
    channel, server = pair
    channel.send(b"one")
    channel.send(b"two")
    server.setblocking(False)
    with pytest.raises(BlockingIOError):
        server.recv(10)
    channel.flush()
    assert server.recv(10) == b"onetwo"


def test_what_the_system_does_not_take_at_once_follows_in_order(pair: tuple[Channel, socket.socket]) -> None:
    channel, server = pair
    sent = bytes(range(256)) * 8192
    channel.send(sent)
    assert not channel.has_room
    got = bytearray()
    while len(got) < len(sent):
        channel.flush()
        got += server.recv(65536)
        if len(got) < len(sent) / 2:
            assert channel.wants == select.POLLIN | select.POLLOUT
    assert got == sent
    assert channel.has_room
    assert channel.wants == select.POLLIN


def test_what_has_come_is_read_ahead(pair: tuple[Channel, socket.socket]) -> None:
    channel, server = pair
    server.sendall(b"abcdef")
    assert channel.pending() == 0
    assert channel.recv(2) == b"ab"
    assert channel.pending() == 4
    assert channel.recv(10) == b"cdef"
    with pytest.raises(BlockingIOError):
        channel.recv(1)


def test_what_was_read_ahead_is_received_first(pair: tuple[Channel, socket.socket]) -> None:
    channel, server = pair
    server.sendall(b"abc")
    assert channel.recv(1) == b"a"
    server.sendall(b"def")
    assert channel.receive() == b"bc"
    assert channel.receive() == b"def"
    assert channel.receive() is None
    server.close()
    assert channel.receive() == b""


def test_an_announced_channel_passes_for_readable_once(pair: tuple[Channel, socket.socket]) -> None:
    channel, _ = pair
    channel.announce()
    assert channel.at_hand
    assert channel.receive() is None
    assert not channel.at_hand


def test_a_broken_connection_is_an_error_when_it_is_flushed(pair: tuple[Channel, socket.socket]) -> None:
    channel, server = pair
    server.close()
    channel.send(b"x")
    with pytest.raises(OSError, match="Broken pipe"):
        channel.flush()


def test_until_it_must_not_block_it_is_an_ordinary_socket() -> None:
    ours, theirs = socket.socketpair()
    with contextlib.closing(Channel(ours)) as channel, theirs:
        ours.settimeout(10)
        channel.sendall(b"isro")
        assert theirs.recv(10) == b"isro"
        theirs.sendall(b"rw")
        assert channel.recv(10) == b"rw"
