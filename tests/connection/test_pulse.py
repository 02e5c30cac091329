"""When to ping, and when a server counts as gone."""

from __future__ import annotations

import pytest

from zkfence._connection._pulse import Pulse


def pulse() -> Pulse:
    return Pulse(read_timeout=6.0, now=100.0)


def test_a_ping_is_due_after_half_the_read_timeout_without_a_request() -> None:
    quiet = pulse()
    assert 102.6 <= quiet.due <= 103.0
    quiet.sent(101.0)
    quiet.heard(101.1, owing=False)
    assert 103.6 <= quiet.due <= 104.0
    assert not quiet.gone(1000.0)  # it owes nothing


def test_a_server_that_does_not_answer_a_ping_until_the_next_is_due_is_gone() -> None:
    quiet = pulse()
    quiet.sent(103.0, ping=True)
    assert not quiet.gone(105.5)
    assert quiet.due <= 106.0
    assert quiet.gone(106.0)


def test_a_server_that_says_anything_after_a_ping_is_not_gone() -> None:
    quiet = pulse()
    quiet.sent(103.0, ping=True)
    quiet.heard(105.0, owing=True)
    assert not quiet.gone(106.0)


def test_a_server_that_says_nothing_is_gone_however_busily_it_is_asked() -> None:
    busy = pulse()
    for tenth in range(1000, 1060):
        busy.sent(tenth / 10)
        assert not busy.gone(tenth / 10)
    assert busy.due == pytest.approx(106.0)
    assert busy.gone(106.0)


def test_a_client_that_was_asleep_does_not_blame_the_server() -> None:
    late = pulse()
    late.sent(5000.0, ping=True)
    assert not late.gone(5002.0)


def test_short_sessions_are_pinged_in_time() -> None:
    assert all(Pulse(read_timeout=0.2, now=0.0).due >= 0.05 for _ in range(100))
