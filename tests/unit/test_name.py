"""Names: any text is a name of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkfence_receivers import InvalidName
from zkfence_receivers.words import check_name, decode_component, encode_component

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80)

AWKWARD = [
    "a/b",
    "a//b",
    ".",
    "..",
    ".hidden",
    "é",
    "e\u0301",
    "🔒",
    "\0",
    "a\nb",
    "%2E",
    "%",
    "a b",
    "x.lock",
    "A",
    "a",
]


@given(texts)
def test_a_component_goes_back_to_its_name(name: str) -> None:
    component = encode_component(name)
    assert decode_component(component) == name
    assert component.isascii()
    assert component.isprintable()
    assert "/" not in component
    assert not component.startswith(".")


def test_awkward_names_stay_apart() -> None:
    assert len({encode_component(name) for name in AWKWARD}) == len(AWKWARD)


@pytest.mark.parametrize("component", [".", "..", "a/b", "%2e", "%zz", "%41", "a b", "é", "%FF"])
def test_what_no_name_encodes_to_is_refused(component: str) -> None:
    with pytest.raises(InvalidName):
        decode_component(component)


@pytest.mark.parametrize("name", ["", "x" * 256, "é" * 128, "\ud800", None, b"x", 7])
def test_bad_names_are_refused(name: object) -> None:
    with pytest.raises(InvalidName):
        check_name(name, "lock")  # type: ignore[arg-type]


def test_255_bytes_are_a_name() -> None:
    assert check_name("x" * 255, "lock") == "x" * 255
    assert check_name("é" * 127, "lock") == "é" * 127
