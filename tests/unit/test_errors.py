"""Errors: one tree, with values, that survive a process pool and that nobody retries by accident."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

import zkfence
import zkfence_receivers as receivers
from zkfence_receivers import Mark, Stamp, Token
from zkfence_receivers.words import ReceiverError, Refused, ZkfenceError

STAMP = Stamp(Token.of(1, 41), "n/reports/7", "guid-a", op=3)
MARK = Mark(Token.of(1, 42), Token.of(1, 42), "n/reports/7", "guid-b", 5)


def all_kinds(root: type[ZkfenceError]) -> Iterator[type[ZkfenceError]]:
    for kind in root.__subclasses__():
        yield kind
        yield from all_kinds(kind)


REFUSALS = list(all_kinds(Refused))


def examples() -> list[ZkfenceError]:
    made: list[ZkfenceError] = [kind("report-7", STAMP, MARK) for kind in REFUSALS]  # type: ignore[call-arg]
    return [
        *made,
        receivers.AlreadyApplied("report-7", STAMP),
        receivers.MarkCorrupt("report-7", "why"),
        receivers.OutcomeUnknown("report-7", STAMP, "timeout"),
        zkfence.LockTimeout("reports/7", 5.0),
        zkfence.LockLost("reports/7", "session over"),
        zkfence.NamespaceDamaged("/zkfence/epoch", "why"),
        zkfence.EpochExhausted("/zkfence"),
        zkfence.ForeignNode("/zkfence/locks/a/1/x-0000000001"),
        zkfence.GrantReleased("a"),
        zkfence.ForkedError("a"),
    ]


@pytest.mark.parametrize("error", examples(), ids=lambda error: type(error).__name__)
def test_errors_are_the_same_after_pickling(error: ZkfenceError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__


def test_a_stale_token_shows_both_tokens_and_carries_the_values() -> None:
    error = receivers.StaleToken("report-7", STAMP, MARK)
    assert "1.41" in str(error)
    assert "1.42" in str(error)
    assert (error.resource, error.stamp, error.mark) == ("report-7", STAMP, MARK)


def test_no_error_is_of_a_kind_that_retry_code_retries() -> None:
    for kind in all_kinds(ZkfenceError):
        assert not issubclass(kind, OSError), kind
        assert not issubclass(kind, RuntimeError), kind


def test_every_receiver_error_names_its_resource() -> None:
    assert all("report-7" in str(error) for error in examples() if isinstance(error, ReceiverError))


def test_advice_after_no_answer_never_does_harm() -> None:
    """A claim's stamp sent again with a payload would be a write; an uncounted change would be applied twice."""
    counted = receivers.OutcomeUnknown("r", STAMP, "timeout")
    claim = receivers.OutcomeUnknown("r", STAMP, "timeout", claiming=True)
    foreign = receivers.OutcomeUnknown("r", Stamp(Token(7)), "timeout")
    assert "send the same payload again" in str(counted)
    assert "claim again" in str(claim)
    assert "payload" not in str(claim)
    assert "do not send it again" in str(foreign)
