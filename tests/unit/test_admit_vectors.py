"""The rule against its shared table, and properties that hold for every mark and every stamp."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkfence_receivers.words import (
    CLAIMS,
    MAX_OP,
    MAX_TOKEN,
    Action,
    InvalidToken,
    Mark,
    Mode,
    Stamp,
    Token,
    Verdict,
    admit,
    digest_of,
    refusal,
    with_reply,
)

TABLE = json.loads(files("zkfence_receivers").joinpath("admit_vectors.json").read_text(encoding="utf-8"))
VECTORS = TABLE["vectors"]


def read_mark(fields: dict[str, Any] | None) -> Mark | None:
    return None if fields is None else Mark.from_json(json.dumps(fields), "the vector's resource")


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_admit_answers_as_the_table_says(vector: dict[str, Any]) -> None:
    mark, stamp = read_mark(vector["mark"]), Stamp.from_json(json.dumps(vector["stamp"]))
    action = Action(vector["action"])
    assert digest_of(action, vector["payload"].encode()) == vector["digest"]
    decision = admit(mark, stamp, action, vector["digest"], data_present=vector["data_present"])
    assert (decision.verdict, decision.mark) == (vector["verdict"], read_mark(vector["after"]))


def test_the_table_has_every_verdict_and_every_action_in_both_modes() -> None:
    assert TABLE["v"] == 1
    assert {vector["verdict"] for vector in VECTORS} == set(Verdict)
    assert {(vector["action"], vector["stamp"]["mode"]) for vector in VECTORS} >= {
        (action, mode) for action in Action for mode in Mode
    }
    assert len({vector["name"] for vector in VECTORS}) == len(VECTORS)


@pytest.mark.parametrize("text", TABLE["invalid_tokens"])
def test_what_is_no_token_is_refused_before_the_rule(text: str) -> None:
    with pytest.raises(InvalidToken):
        Token.parse(text)
    with pytest.raises(InvalidToken):
        Stamp.from_json(json.dumps({"v": 1, "token": text}))


@pytest.mark.parametrize("value", [0, -1, 2**63, True, False, 1.0, "7", None, b"7", float("nan")])
def test_what_is_no_integer_of_the_range_makes_no_stamp(value: Any) -> None:
    with pytest.raises(InvalidToken):
        Stamp(value)


# Few different values, so that equal, neighbouring and crossing ones are common.
tokens = st.one_of(st.integers(1, 6), st.sampled_from([2**53, 2**53 + 1, MAX_TOKEN - 1, MAX_TOKEN])).map(Token)
locks = st.sampled_from(["", "n/a", "n/b", "m/a"])
holders = st.sampled_from(["", "guid-a", "guid-b"])
payloads = st.sampled_from([b"", b"one", b"two"])
actions = st.sampled_from(Action)
stamps = st.builds(
    Stamp,
    token=tokens,
    lock=locks,
    holder=holders,
    mode=st.sampled_from(Mode),
    op=st.none() | st.integers(1, 4) | st.just(MAX_OP),
)
requests = st.tuples(actions, payloads, stamps)


@st.composite
def marks(draw: st.DrawFn) -> Mark:
    token = draw(tokens)
    written = draw(st.none() | tokens.filter(lambda value: value <= token))
    op = draw(st.integers(0, 4))
    digest = digest_of(draw(actions), draw(payloads)) if op else ""
    return Mark(token, written, draw(locks), draw(holders), op, digest, draw(st.sampled_from([b"", b"1", None])))


def judge(mark: Mark | None, request: tuple[Action, bytes, Stamp], *, data: bool) -> tuple[Verdict, Mark | None]:
    action, payload, stamp = request
    decision = admit(mark, stamp, action, digest_of(action, payload), data_present=data)
    return decision.verdict, decision.mark


@given(st.none() | marks(), requests, st.booleans())
def test_a_request_that_is_not_admitted_changes_nothing(
    mark: Mark | None, request: tuple[Action, bytes, Stamp], data: bool
) -> None:
    verdict, after = judge(mark, request, data=data)
    if verdict is not Verdict.ADMITTED:
        assert after == mark
    error = refusal(verdict, "r", request[2], mark)
    assert (error is None) == (verdict in (Verdict.ADMITTED, Verdict.DUPLICATE))


@given(st.none() | marks(), st.lists(st.tuples(requests, st.booleans()), max_size=12))
def test_marks_only_rise_and_keep_their_lock(
    mark: Mark | None, sequence: list[tuple[tuple[Action, bytes, Stamp], bool]]
) -> None:
    for request, data in sequence:
        _, after = judge(mark, request, data=data)
        if mark is not None:
            assert after is not None
            assert after.token >= mark.token
            assert (after.written or 0) >= (mark.written or 0)
            assert after.lock == mark.lock
            assert after.op >= mark.op or after.token > mark.token
        if after is not None:
            assert (after.written or 0) <= after.token
        mark = after


@given(st.none() | marks(), requests, st.booleans())
def test_an_admitted_change_carries_the_highest_token_and_stays_in_the_mark(
    mark: Mark | None, request: tuple[Action, bytes, Stamp], data: bool
) -> None:
    action, payload, stamp = request
    verdict, after = judge(mark, request, data=data)
    if verdict is not Verdict.ADMITTED or action is Action.READ:
        return
    if stamp.mode is Mode.WRITE:
        assert after is not None
        assert mark is None or stamp.token >= mark.token
        assert (after.token, after.holder) == (stamp.token, stamp.holder)
        if stamp.op is not None:
            assert (after.op, after.digest) == (stamp.op, digest_of(action, payload))
        if action not in CLAIMS:
            assert after.written == stamp.token
    else:
        assert action in CLAIMS
        assert after is not None
        assert after.token >= stamp.token
        assert after.written == (mark.written if mark else None)


@given(st.none() | marks(), requests, st.booleans(), st.lists(requests, max_size=6))
def test_a_counted_change_is_admitted_once_whatever_comes_between(
    mark: Mark | None, request: tuple[Action, bytes, Stamp], data: bool, between: list[tuple[Action, bytes, Stamp]]
) -> None:
    _, _, stamp = request
    verdict, after = judge(mark, request, data=data)
    if verdict is not Verdict.ADMITTED or stamp.op is None or stamp.mode is Mode.READ or request[0] is Action.READ:
        return
    assert judge(after, request, data=True) == (Verdict.DUPLICATE, after)
    for other in between:
        _, after = judge(after, other, data=True)
    again, untouched = judge(after, request, data=True)
    assert again is not Verdict.ADMITTED
    assert untouched == after


@given(marks(), requests)
def test_where_there_is_a_mark_data_makes_no_difference(mark: Mark, request: tuple[Action, bytes, Stamp]) -> None:
    assert judge(mark, request, data=True) == judge(mark, request, data=False)


@given(st.none() | marks(), requests, st.booleans())
def test_readers_write_nothing_and_reads_leave_the_mark(
    mark: Mark | None, request: tuple[Action, bytes, Stamp], data: bool
) -> None:
    action, payload, stamp = request
    verdict, _ = judge(mark, (action, payload, replace(stamp, mode=Mode.READ)), data=data)
    if action in (Action.WRITE, Action.DELETE):
        assert verdict is not Verdict.ADMITTED
        assert verdict is not Verdict.DUPLICATE
    if action is Action.READ:
        assert judge(mark, request, data=data)[1] == mark


@given(marks(), requests, st.integers(0, 300))
def test_a_reply_is_kept_if_it_is_small_and_its_request_is_counted(
    mark: Mark, request: tuple[Action, bytes, Stamp], size: int
) -> None:
    stamp = request[2]
    kept = with_reply(mark, stamp, b"x" * size).reply
    assert kept == (mark.reply if stamp.op is None else b"x" * size if size <= 256 else None)
