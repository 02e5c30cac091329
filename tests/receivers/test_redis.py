"""RedisReceiver: keys and names, clients of every kind, marks that stay, data that is not ours, no redis-py."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.crc import key_slot

from zkfence_receivers import (
    InvalidName,
    MarkCorrupt,
    RedisReceiver,
    Stamp,
    StoreFailed,
    Token,
    Unfenced,
)
from zkfence_receivers.testing import LocalRedis
from zkfence_receivers.words import decode_component


@pytest.fixture(scope="module")
def client(zkfence_redis: LocalRedis) -> Iterator[redis.Redis]:
    with zkfence_redis.client() as client:
        yield client


@pytest.fixture
def prefix() -> str:
    return f"test-{os.urandom(6).hex()}"


@pytest.fixture
def store(client: redis.Redis, prefix: str) -> RedisReceiver:
    return RedisReceiver(client, prefix=prefix)


def stamp(token: int, op: int | None = 1, holder: str = "guid-a") -> Stamp:
    return Stamp(Token(token), "n/l", holder, op=op)


NAMES = [
    "report-7",
    "{",
    "}",
    "{}",
    "}{",
    "{a}b{c}",
    "a/b",
    "a//b",
    "..",
    ".",
    "a b\n\0\r*?[",
    "é",
    "e\u0301",
    "\U0001f512",
    "%7B",
    ":mark",
    "x" * 255,
]


@pytest.mark.parametrize("resource", NAMES)
def test_a_resource_has_its_two_keys_in_one_slot_whatever_its_name(
    client: redis.Redis, store: RedisReceiver, prefix: str, resource: str
) -> None:
    handle = store.claim(resource, stamp(7))
    handle.write(b"data")
    assert handle.read() == b"data"
    keys = sorted(client.keys(f"{prefix}:*"))
    assert len({key_slot(key) for key in keys}) == 1
    data, mark = keys
    tag = data.decode().removeprefix(f"{prefix}:{{").removesuffix("}:data")
    assert mark.decode() == f"{prefix}:{{{tag}}}:mark"
    assert decode_component(tag) == resource


def test_different_names_are_different_resources(store: RedisReceiver) -> None:
    for number, resource in enumerate(NAMES, start=1):
        store.claim(resource, stamp(number)).write(resource.encode())
    for number, resource in enumerate(NAMES, start=1):
        mark = store.mark(resource)
        assert mark is not None
        assert mark.token == number


@pytest.mark.parametrize("resource", ["", "x" * 256, "x" * 10_000, b"bytes", None, 7, "\ud800"])
def test_what_is_no_name_is_refused_before_anything_is_sent(resource: Any) -> None:
    with redis.Redis(port=1) as nowhere:
        store = RedisReceiver(nowhere)
        for call in (store.mark, lambda name: store.claim(name, stamp(7)), lambda name: store.adopt(name, stamp(7))):
            with pytest.raises(InvalidName):
                call(resource)
        with pytest.raises(InvalidName):
            store.apply_stamped(resource, b"", stamp(7))


@pytest.mark.parametrize("bad", ["", "{", "a}", "a{b}", "é", "a\n", b"bytes", None])
def test_what_is_no_prefix_is_refused(client: redis.Redis, bad: Any) -> None:
    with pytest.raises(InvalidName):
        RedisReceiver(client, prefix=bad)


def test_prefixes_keep_receivers_apart(client: redis.Redis, store: RedisReceiver, prefix: str) -> None:
    store.claim("r", stamp(7)).write(b"here")
    other = RedisReceiver(client, prefix=f"{prefix}-b")
    assert other.mark("r") is None
    assert other.claim("r", stamp(3)).read() is None


@pytest.mark.parametrize("decode_responses", [False, True])
@pytest.mark.parametrize("protocol", [2, 3])
def test_any_client_does(zkfence_redis: LocalRedis, prefix: str, protocol: int, decode_responses: bool) -> None:
    payloads = [b"", b"text", bytes(range(256)), "é\U0001f512".encode("utf-16"), b"*3\r\n$3\r\n"]
    with zkfence_redis.client(protocol=protocol, decode_responses=decode_responses, encoding="latin-1") as client:
        store = RedisReceiver(client, prefix=prefix)
        assert store.check() == "verified"
        handle = store.claim("réport\n", stamp(2**53 + 1, holder="gu\U0001f512id"))
        for payload in payloads:
            handle.write(payload)
            assert handle.read() == payload
        mark = store.mark("réport\n")
        assert mark is not None
        assert (mark.token, mark.written, mark.holder) == (2**53 + 1, 2**53 + 1, "gu\U0001f512id")
        assert handle.delete() is True
        assert handle.delete() is False
        assert handle.read() is None


def test_a_payload_of_10_mb(store: RedisReceiver) -> None:
    handle = store.claim("large", stamp(7))
    payload = os.urandom(10_000_000)
    handle.write(payload)
    assert handle.read() == payload


def test_bytes_likes_are_stored_and_text_is_not(store: RedisReceiver) -> None:
    handle = store.claim("r", stamp(7))
    handle.write(bytearray(b"abc"))
    handle.write(memoryview(b"abcd")[1:3])
    assert handle.read() == b"bc"
    with pytest.raises(TypeError, match="encode"):
        handle.write("text")  # type: ignore[arg-type]
    assert handle.read() == b"bc"


@pytest.mark.parametrize("client", [redis.asyncio.Redis(), "redis://localhost", None])
def test_only_a_synchronous_client_makes_a_receiver(client: Any) -> None:
    with pytest.raises(TypeError, match=r"redis\.Redis"):
        RedisReceiver(client)


def test_durability_is_one_of_two_words(client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="asserted"):
        RedisReceiver(client, durability="yes")  # type: ignore[arg-type]


def test_nothing_ever_expires(client: redis.Redis, store: RedisReceiver, prefix: str) -> None:
    mark, data = f"{prefix}:{{r}}:mark", f"{prefix}:{{r}}:data"
    handle = store.claim("r", stamp(7))
    assert client.ttl(mark) == -1
    handle.write(b"one")
    client.expire(data, 3600)  # somebody else's doing: the next write undoes it
    handle.write(b"two")
    assert (client.ttl(mark), client.ttl(data)) == (-1, -1)
    handle.delete()
    store.claim("r", stamp(8, holder="guid-b")).read()
    assert client.ttl(mark) == -1


def test_the_mark_outlives_the_data_and_the_scripts(client: redis.Redis, store: RedisReceiver, prefix: str) -> None:
    handle = store.claim("r", stamp(7))
    handle.write(b"one")
    handle.delete()
    assert client.keys(f"{prefix}:*") == [f"{prefix}:{{r}}:mark".encode()]
    client.script_flush()
    handle.write(b"two")
    assert handle.read() == b"two"


def test_an_evicted_mark_leaves_the_data_unfenced(client: redis.Redis, store: RedisReceiver, prefix: str) -> None:
    handle = store.claim("r", stamp(7))
    handle.write(b"one")
    client.delete(f"{prefix}:{{r}}:mark")
    for attempt in (handle.read, lambda: handle.write(b"two"), handle.delete, lambda: store.claim("r", stamp(8))):
        with pytest.raises(Unfenced):
            attempt()
    assert client.get(f"{prefix}:{{r}}:data") == b"one"
    assert client.exists(f"{prefix}:{{r}}:mark") == 0


@pytest.mark.parametrize(
    "kind", ["string", "hash without a mark", "field missing", "newer format", "token that is none"]
)
def test_a_mark_that_cannot_be_read_is_told_and_refuses_everything(
    client: redis.Redis, store: RedisReceiver, prefix: str, kind: str
) -> None:
    handle = store.claim("r", stamp(7))
    key = f"{prefix}:{{r}}:mark"
    match kind:
        case "string":
            client.set(key, "7")
        case "hash without a mark":
            client.delete(key)
            client.hset(key, "a", "b")
        case "field missing":
            client.hdel(key, "holder")
        case "newer format":
            client.hset(key, "v", "2")
        case "token that is none":
            client.hset(key, "token", "007")
    before = client.dump(key)
    for attempt in (
        handle.read,
        lambda: handle.write(b""),
        handle.delete,
        lambda: store.claim("r", stamp(8)),
        lambda: store.adopt("r", stamp(8)),
        lambda: store.apply_stamped("r", b"", stamp(2**63 - 1)),
        lambda: store.mark("r"),
    ):
        with pytest.raises(MarkCorrupt) as caught:
            attempt()
        assert caught.value.resource == "r"
    assert client.dump(key) == before
    assert client.exists(f"{prefix}:{{r}}:data") == 0


def test_a_marks_lock_that_is_no_text_is_corrupt_where_it_would_be_shown(
    client: redis.Redis, store: RedisReceiver, prefix: str
) -> None:
    handle = store.claim("r", stamp(7))
    client.hset(f"{prefix}:{{r}}:mark", "lock", b"\xff")
    for attempt in (handle.read, lambda: store.mark("r")):
        with pytest.raises(MarkCorrupt):
            attempt()


def test_data_of_another_type_is_never_overwritten(client: redis.Redis, store: RedisReceiver, prefix: str) -> None:
    handle = store.claim("r", stamp(7))
    key = f"{prefix}:{{r}}:data"
    client.rpush(key, "somebody's")
    before = store.mark("r")
    for attempt in (handle.read, lambda: handle.write(b"ours"), handle.delete, lambda: store.adopt("r", stamp(9))):
        with pytest.raises(StoreFailed, match="list"):
            attempt()
    assert client.lrange(key, 0, -1) == [b"somebody's"]
    assert store.mark("r") == before


def test_a_new_holder_claims_although_the_data_is_of_another_type(
    client: redis.Redis, store: RedisReceiver, prefix: str
) -> None:
    store.claim("r", stamp(7))
    client.rpush(f"{prefix}:{{r}}:data", "somebody's")
    store.claim("r", stamp(8, holder="guid-b"))
    mark = store.mark("r")
    assert mark is not None
    assert mark.token == 8


def test_a_read_writes_nothing_to_the_append_only_file(client: redis.Redis, store: RedisReceiver) -> None:
    handle = store.claim("r", stamp(7))
    before = client.info("persistence")["aof_current_size"]
    handle.read()
    assert client.info("persistence")["aof_current_size"] == before
    handle.write(b"")
    assert client.info("persistence")["aof_current_size"] > before


def test_without_redis_py_the_error_says_what_to_install() -> None:
    program = (
        "import sys\n"
        "sys.modules['redis'] = None\n"
        "import zkfence_receivers\n"
        "try:\n"
        "    zkfence_receivers.RedisReceiver\n"
        "except ImportError as error:\n"
        "    sys.exit(0 if \"pip install 'zkfence[redis]'\" in str(error) else str(error))\n"
        "sys.exit('no error')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
