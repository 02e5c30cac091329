"""The messages in a server's stream."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.exceptions import ConnectionDropped

from zkfence._connection._frames import Frames


def stream_of(messages: list[bytes]) -> bytes:
    return b"".join(struct.pack("!i", len(message)) + message for message in messages)


@given(st.lists(st.binary(min_size=16, max_size=80), max_size=12), st.randoms(use_true_random=False))
def test_the_messages_are_the_same_however_the_stream_is_cut(messages: list[bytes], chance: random.Random) -> None:
    stream = stream_of(messages)
    frames = Frames()
    found = []
    while stream:
        cut = chance.randint(1, len(stream))
        piece, stream = stream[:cut], stream[cut:]
        data, beginnings = frames.find(piece)
        for beginning in beginnings:
            (length,) = struct.unpack_from("!i", data, beginning - 4)
            found.append(data[beginning : beginning + length])
    assert found == messages


def test_a_large_message_is_put_together_once() -> None:
    message = bytes(4_000_000)
    stream = stream_of([message])
    frames = Frames()
    steps = [frames.find(stream[start : start + 1000]) for start in range(0, len(stream), 1000)]
    assert [beginnings for _, beginnings in steps[:-1]] == [[]] * (len(steps) - 1)
    assert all(data == b"" for data, _ in steps[1:-1])
    assert steps[-1][0][4:] == message


@pytest.mark.parametrize("length", [-1, 0, 15, -(2**31)])
def test_what_no_server_sends_drops_the_connection(length: int) -> None:
    with pytest.raises(ConnectionDropped, match="invalid"):
        Frames().find(struct.pack("!i", length))
