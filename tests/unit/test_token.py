"""Token: what is one, what is not, and that it never loses a digit."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkfence_receivers import InvalidToken, Token

tokens = st.integers(1, 2**63 - 1)


@pytest.mark.parametrize("value", [0, -1, 2**63, True, False, 1.0, None, "1", b"1"])
def test_values_that_are_no_token_are_refused(value: object) -> None:
    with pytest.raises(InvalidToken):
        Token(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        *[
            "0",
            "-1",
            "",
            "1_0",
            " 7",
            "7 ",
            "7\n",
            "07",
            "+7",
            "٣",
            "1.0",
            "1e3",
            "0x1",
            "9223372036854775808",
            "1" * 20,
        ],
        *["6fa459ea-ee8a-3ca4-894e-db77e160355e", "2026-12-01T00:00:00Z", 7, True, None, b"7", 1.0],
    ],
)
def test_texts_that_are_no_token_are_refused(text: object) -> None:
    with pytest.raises(InvalidToken):
        Token.parse(text)


@given(tokens)
def test_the_wire_form_is_canonical_decimal(value: int) -> None:
    token = Token(value)
    assert str(token) == repr(token) == f"{token}" == json.dumps(token) == str(int(value))
    assert Token.parse(str(token)) == token
    assert pickle.loads(pickle.dumps(token)) == token


@given(st.text())
def test_what_parses_is_what_it_prints(text: str) -> None:
    try:
        token = Token.parse(text)
    except InvalidToken:
        return
    assert str(token) == text


@given(tokens, tokens)
def test_order_is_exact(a: int, b: int) -> None:
    assert (Token(a) < Token(b)) == (a < b)
    assert (Token(a) == Token(b)) == (a == b)


def test_neighbours_that_a_float_cannot_tell_apart_differ() -> None:
    assert Token(2**53) < Token(2**53 + 1)
    assert Token(2**63 - 2) < Token(2**63 - 1)


@given(st.integers(1, 2**32 - 1), st.integers(0, 2**31 - 1))
def test_epoch_and_sequence_survive(epoch: int, sequence: int) -> None:
    token = Token.of(epoch, sequence)
    assert (token.epoch, token.sequence) == (epoch, sequence)
    assert token.dotted == f"{epoch}.{sequence}"
    assert token < Token.of(epoch + 1, 0) if epoch + 1 < 2**32 else token <= 2**63 - 1


def test_every_token_of_an_epoch_is_below_every_token_of_the_next() -> None:
    assert Token.of(1, 2**31 - 1) < Token.of(2, 0)


@pytest.mark.parametrize(("epoch", "sequence"), [(0, 1), (2**32, 0), (1, -1), (1, 2**31)])
def test_numbers_outside_an_epoch_make_no_token(epoch: int, sequence: int) -> None:
    with pytest.raises(InvalidToken):
        Token.of(epoch, sequence)
