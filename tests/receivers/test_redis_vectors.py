"""The script on the server against the shared table of the rule, as a stranger's client would call it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
import redis

from zkfence_receivers import RedisReceiver
from zkfence_receivers.testing import LocalRedis
from zkfence_receivers.words import Mark, Stamp, Token

PACKAGE = files("zkfence_receivers")
SOURCE = PACKAGE.joinpath("_redis", "admit.lua").read_text(encoding="utf-8")
TABLE = json.loads(PACKAGE.joinpath("admit_vectors.json").read_text(encoding="utf-8"))
VECTORS = TABLE["vectors"]
RESOURCE = "the-vector"
FIELDS = ("v", "token", "written", "lock", "holder", "op", "digest", "reply")

Fields = dict[str, Any]
Answer = list[bytes | None]


class Wire:
    """The script's call in plain redis-py: no line of the receiver is on the way."""

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        self.client = client
        self.prefix = prefix
        self.mark_key = f"{prefix}:{{{RESOURCE}}}:mark"
        self.data_key = f"{prefix}:{{{RESOURCE}}}:data"
        self._script = client.register_script(SOURCE)

    def call(self, **changes: str | bytes) -> Answer:
        arguments: dict[str, str | bytes] = {
            "protocol": "1",
            "action": "write",
            "token": "7",
            "lock": "n/l",
            "holder": "guid-a",
            "mode": "write",
            "op": "1",
            "digest": "ab" * 32,
            "payload": "new",
        }
        assert changes.keys() <= arguments.keys()
        answer = self._script(keys=[self.mark_key, self.data_key], args=list((arguments | changes).values()))
        assert isinstance(answer, list)
        assert all(value is None or isinstance(value, bytes) for value in answer), "only bulk strings"
        return answer

    def put_mark(self, mark: Fields) -> None:
        reply = b"-" if mark["reply"] is None else b"+" + base64.b64decode(mark["reply"])
        fields = {**mark, "written": mark["written"] or "", "reply": reply}
        self.client.hset(self.mark_key, mapping=fields)

    def contents(self) -> tuple[dict[bytes, bytes], bytes | None]:
        return self.client.hgetall(self.mark_key), self.client.get(self.data_key)


@pytest.fixture(scope="module")
def client(zkfence_redis: LocalRedis) -> Iterator[redis.Redis]:
    with zkfence_redis.client() as client:
        yield client


@pytest.fixture
def wire(client: redis.Redis) -> Wire:
    return Wire(client, f"vectors-{os.urandom(6).hex()}")


def read_mark(fields: Fields | None) -> Mark | None:
    return None if fields is None else Mark.from_json(json.dumps(fields), RESOURCE)


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_the_script_answers_as_the_table_says(wire: Wire, vector: Fields) -> None:
    if vector["mark"] is not None:
        wire.put_mark(vector["mark"])
    if vector["data_present"]:
        wire.client.set(wire.data_key, "old")
    stamp, action = vector["stamp"], vector["action"]
    op = stamp.get("op")
    answer = wire.call(
        action=action,
        token=stamp["token"],
        lock=stamp["lock"],
        holder=stamp["holder"],
        mode=stamp["mode"],
        op="" if op is None else str(op),
        digest=vector["digest"],
        payload=vector["payload"],
    )
    _, data = wire.contents()
    before = b"old" if vector["data_present"] else None
    expected = vector["after"]
    if vector["verdict"] == "admitted":
        existed = b"1" if vector["data_present"] else b"0"
        assert answer == [b"admitted", existed, before if action == "read" else None]
        assert data == {"write": vector["payload"].encode(), "delete": None}.get(action, before)
        if action == "delete" and op is not None:
            expected = {**expected, "reply": base64.b64encode(existed).decode()}
    else:
        assert answer[0] == vector["verdict"].encode()
        assert len(answer) == (1 if vector["mark"] is None else 9)
        assert data == before
    assert RedisReceiver(wire.client, prefix=wire.prefix).mark(RESOURCE) == read_mark(expected)


@pytest.mark.parametrize("text", [*TABLE["invalid_tokens"], b"7\xff", b"\x00"])
@pytest.mark.parametrize("action", ["claim", "adopt", "read", "write", "delete"])
def test_what_is_no_token_is_refused_by_the_script_before_anything_changes(
    wire: Wire, text: str | bytes, action: str
) -> None:
    assert wire.call()[0] == b"admitted"
    before = wire.contents()
    assert wire.call(action=action, token=text, op="2")[0] == b"invalid-token"
    assert wire.contents() == before


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"protocol": "2"}, b"invalid-request"),
        ({"protocol": ""}, b"invalid-request"),
        ({"action": "WRITE"}, b"invalid-request"),
        ({"action": "__index"}, b"invalid-request"),
        ({"mode": "rw"}, b"invalid-stamp"),
        ({"mode": ""}, b"invalid-stamp"),
        ({"op": "0"}, b"invalid-stamp"),
        ({"op": "02"}, b"invalid-stamp"),
        ({"op": "2.0"}, b"invalid-stamp"),
        ({"op": "-2"}, b"invalid-stamp"),
        ({"op": "1e3"}, b"invalid-stamp"),
        ({"op": "9007199254740992"}, b"invalid-stamp"),
        ({"op": "9007199254740993"}, b"invalid-stamp"),
        ({"op": "99999999999999999999"}, b"invalid-stamp"),
        ({"digest": ""}, b"invalid-stamp"),
        ({"digest": "AB" * 32}, b"invalid-stamp"),
        ({"digest": "ab" * 31 + "a\n"}, b"invalid-stamp"),
    ],
)
def test_a_malformed_request_is_refused_by_the_script_before_anything_changes(
    wire: Wire, changes: dict[str, str], word: bytes
) -> None:
    assert wire.call()[0] == b"admitted"
    before = wire.contents()
    assert wire.call(**({"op": "2"} | changes))[0] == word
    assert wire.contents() == before


def test_the_script_refuses_keys_that_do_not_belong_together(wire: Wire) -> None:
    other = Wire(wire.client, wire.prefix + "-other")
    wire.data_key = other.data_key
    assert wire.call()[0] == b"invalid-request"
    wire.data_key = wire.mark_key
    assert wire.call()[0] == b"invalid-request"
    wire.mark_key = wire.data_key = f"{wire.prefix}:free"
    assert wire.call()[0] == b"invalid-request"
    assert wire.client.keys(f"{wire.prefix}*") == []


def test_the_script_refuses_too_few_and_too_many_arguments(wire: Wire) -> None:
    for keys, arguments in (([wire.mark_key], 9), ([wire.mark_key, wire.data_key], 8), ([wire.mark_key] * 3, 9)):
        answer = wire.client.eval(SOURCE, len(keys), *keys, *["1"] * arguments)
        assert answer[0] == b"invalid-request"
        assert b"9 arguments" in answer[1]
    assert wire.client.eval(SOURCE, 2, wire.mark_key, wire.data_key, *["1"] * 10)[0] == b"invalid-request"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"v": "2"}, b"format"),
        ({"v": ""}, b"format"),
        ({"token": "07"}, b"token"),
        ({"token": "7.0"}, b"token"),
        ({"token": ""}, b"token"),
        ({"token": "9223372036854775808"}, b"token"),
        ({"written": "x"}, b"token"),
        ({"written": "8"}, b"above"),
        ({"op": ""}, b"op"),
        ({"op": "-1"}, b"op"),
        ({"op": "9007199254740992"}, b"op"),
        ({"reply": ""}, b"reply"),
        *[
            ({field: None}, b"missing")
            for field in ("v", "token", "written", "lock", "holder", "op", "digest", "reply")
        ],
    ],
)
def test_a_mark_that_cannot_be_read_refuses_everything(
    wire: Wire, changes: dict[str, str | None], reason: bytes
) -> None:
    assert wire.call()[0] == b"admitted"
    for field, value in changes.items():
        if value is None:
            wire.client.hdel(wire.mark_key, field)
        else:
            wire.client.hset(wire.mark_key, field, value)
    before = wire.contents()
    for action in ("claim", "adopt", "read", "write", "delete"):
        word, why = wire.call(action=action, token="99", op="2")
        assert word == b"mark-corrupt"
        assert why is not None
        assert reason in why
    assert wire.contents() == before


def test_a_key_of_another_kind_in_the_marks_place_refuses_everything(wire: Wire) -> None:
    wire.client.set(wire.mark_key, "7")
    assert wire.call()[0] == b"mark-corrupt"
    wire.client.delete(wire.mark_key)
    wire.client.hset(wire.mark_key, "something", "else")
    assert wire.call()[0] == b"mark-corrupt"
    assert wire.client.get(wire.data_key) is None


def test_a_stranger_and_the_receiver_know_each_others_requests(wire: Wire) -> None:
    digest = hashlib.sha256(b"write\0new").hexdigest()
    assert wire.call(digest=digest)[0] == b"admitted"
    again = RedisReceiver(wire.client, prefix=wire.prefix).apply_stamped(
        RESOURCE, b"new", Stamp(Token(7), "n/l", "guid-a", op=1)
    )
    assert again.duplicate
