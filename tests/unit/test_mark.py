"""Mark: stored and read again, and unreadable ones told."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkfence_receivers import Mark, MarkCorrupt, Token

tokens = st.builds(Token, st.integers(1, 2**63 - 1))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@given(tokens, st.none() | tokens, texts, texts, st.integers(0, 2**53 - 1), texts, st.none() | st.binary(max_size=256))
def test_json_goes_round(
    token: Token, written: Token | None, lock: str, holder: str, op: int, digest: str, reply: bytes | None
) -> None:
    if written is not None and written > token:
        token, written = written, token
    mark = Mark(token, written, lock, holder, op, digest, reply)
    assert Mark.from_json(mark.to_json(), "r") == mark
    assert Mark.from_json(mark.to_json().encode(), "r") == mark


GOOD = json.loads(Mark(Token(7), Token(7), "n/l", "h", 3, "d").to_json())


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", "7", "{", b"\xff\xff", "[" * 100_000]
    + [
        json.dumps({**GOOD, field: value})
        for field, value in [
            ("v", 2),
            ("v", "1"),
            ("v", True),
            ("v", 1.0),
            ("extra", 1),
            ("token", 7),
            ("token", "0"),
            ("token", None),
            ("written", "8"),
            ("written", 7),
            ("lock", None),
            ("holder", 7),
            ("op", "3"),
            ("op", -1),
            ("op", 1.0),
            ("op", True),
            ("digest", None),
            ("reply", "***"),
            ("reply", 7),
        ]
    ]
    + [json.dumps({name: value for name, value in GOOD.items() if name != missing}) for missing in GOOD],
)
def test_an_unreadable_mark_is_told_and_names_the_resource(text: str | bytes) -> None:
    with pytest.raises(MarkCorrupt) as caught:
        Mark.from_json(text, "report-7")
    assert caught.value.resource == "report-7"
