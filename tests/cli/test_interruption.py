"""Signals end the demo where it waits, and nowhere else."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

import pytest

from zkfence.cli._demo._failure import DemoFailed
from zkfence.cli._demo._interruption import Interrupted, Interruption


def send(signum: int) -> None:
    os.kill(os.getpid(), signum)


def be_interrupted() -> None:
    send(signal.SIGINT)
    time.sleep(60)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_wait_ends_at_once(signum: int) -> None:
    with Interruption() as interruption, pytest.raises(Interrupted) as caught, interruption.waiting("it", 60):
        send(signum)
    assert caught.value.status == 128 + signum


def test_whatever_does_not_wait_is_finished_first() -> None:
    with Interruption() as interruption:
        send(signal.SIGTERM)
        with pytest.raises(Interrupted), interruption.waiting("it", 60):
            pytest.fail("the wait began")


def test_the_clean_up_is_not_disturbed() -> None:
    with Interruption() as interruption:
        interruption.end()
        send(signal.SIGINT)
        send(signal.SIGINT)


def raise_another_error() -> None:
    try:
        be_interrupted()
    except BaseException:
        raise OSError from None


def go_on_waiting() -> None:
    with contextlib.suppress(BaseException):
        be_interrupted()
    time.sleep(60)


def go_on() -> None:
    with contextlib.suppress(BaseException):
        be_interrupted()


@pytest.mark.parametrize("library", [raise_another_error, go_on_waiting, go_on])
def test_a_library_that_catches_everything_does_not_hide_the_signal(library: Callable[[], None]) -> None:
    with Interruption() as interruption, pytest.raises(Interrupted), interruption.waiting("it", 60):
        library()


def test_a_wait_that_takes_too_long_fails_and_says_what_did_not_come() -> None:
    with (
        Interruption() as interruption,
        pytest.raises(DemoFailed, match="the answer did not come within"),
        interruption.waiting("the answer", 0.01),
    ):
        time.sleep(60)


def test_what_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interruption() as interruption, interruption.waiting("it", 60):
            send(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_handlers_of_others_come_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interruption():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before
