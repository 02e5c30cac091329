"""Stamp: on the wire and back, and nothing else accepted."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkfence_receivers import InvalidStamp, InvalidToken, Mode, Stamp, Token

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
stamps = st.builds(
    Stamp,
    st.builds(Token, st.integers(1, 2**63 - 1)),
    lock=texts,
    holder=texts,
    mode=st.sampled_from(Mode),
    op=st.none() | st.integers(1, 2**53 - 1),
)


@given(stamps)
def test_json_goes_round(stamp: Stamp) -> None:
    assert Stamp.from_json(stamp.to_json()) == stamp
    assert isinstance(json.loads(stamp.to_json())["token"], str), "a JSON number would lose digits in JavaScript"


@given(stamps)
def test_headers_go_round_in_any_case(stamp: Stamp) -> None:
    headers = stamp.to_headers()
    assert all(value.isascii() and value.isprintable() for value in headers.values())
    assert Stamp.from_headers(headers) == stamp
    assert Stamp.from_headers({name.upper(): value for name, value in headers.items()}) == stamp


def changed(**fields: object) -> str:
    return json.dumps({**json.loads(Stamp(Token(7), "n/l", "h", op=1).to_json()), **fields})


@pytest.mark.parametrize("token", [7, 7.0, True, None, "07", "0", " 7", "1_0", "٣", "9223372036854775808", "1.5"])
def test_a_wrong_token_in_json_is_an_invalid_token(token: object) -> None:
    with pytest.raises(InvalidToken):
        Stamp.from_json(changed(token=token))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "7",
        "{",
        b"\xff",
        "[" * 100_000,
        changed(v=2),
        changed(v=True),
        changed(v="1"),
        changed(lock=7),
        changed(holder=None),
        changed(mode="admin"),
        changed(op=0),
        changed(op=-1),
        changed(op=1.0),
        changed(op=True),
        changed(op="1"),
        changed(op=2**53),
        changed(extra=1),
        '{"v":1,"token":"5","token":"9"}',
    ],
)
def test_anything_else_is_an_invalid_stamp(text: str | bytes) -> None:
    with pytest.raises(InvalidStamp):
        Stamp.from_json(text)


@pytest.mark.parametrize(
    "headers",
    [
        {"Fencing-Token": "7", "fencing-token": "8"},
        {"Fencing-Token": "7", "Fencing-Version": "2"},
        {"Fencing-Token": "7", "Fencing-Op": "0"},
        {"Fencing-Token": "7", "Fencing-Op": "٣"},
        {"Fencing-Token": "7", "Fencing-Op": "007"},
        {"Fencing-Token": "7", "Fencing-Op": 7},
        {"Fencing-Token": "7", "Fencing-Lock": "\ud800"},
        {"Fencing-Token": "7", "Fencing-Op": "9" * 30},
        {"Fencing-Token": "7", "Fencing-Mode": "admin"},
        {"Fencing-Token": "7", "Fencing-Lock": "a/b"},
    ],
)
def test_anything_else_in_headers_is_an_invalid_stamp(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidStamp):
        Stamp.from_headers(headers)


def test_headers_without_a_token_are_refused() -> None:
    with pytest.raises(InvalidToken):
        Stamp.from_headers({"Content-Type": "text/plain"})


def test_a_foreign_client_may_send_a_token_alone() -> None:
    assert Stamp.from_json('{"v":1,"token":"33"}') == Stamp(Token(33))
    assert Stamp.from_headers({"Fencing-Token": "33"}) == Stamp(Token(33))


@pytest.mark.parametrize("token", [0, True, 1.0, "7", 2**63])
def test_a_stamp_is_not_made_from_a_wrong_token(token: object) -> None:
    with pytest.raises(InvalidToken):
        Stamp(token)  # type: ignore[arg-type]


def test_a_name_that_only_looks_like_a_header_is_none() -> None:
    assert Stamp.from_headers({"Fencing-Token": "7", "Fencing-To\u212aen": "8"}) == Stamp(Token(7))


def test_what_is_not_understood_is_shown_escaped() -> None:
    with pytest.raises(InvalidStamp) as caught:
        Stamp.from_json(changed(**{"a\nb": 1}))
    assert "\n" not in str(caught.value)
