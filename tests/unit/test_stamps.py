"""Stamps: a grant's requests on a resource are numbered once and for all."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from zkfence_receivers import MemoryReceiver, Mode, OutOfOrder, Stamp, Token
from zkfence_receivers.words import StampedClaimant, Stamps


def test_numbers_are_taken_once_and_in_order() -> None:
    stamps = Stamps(Stamp(Token(7), op=1))
    with ThreadPoolExecutor(8) as threads:
        taken = list(threads.map(lambda _: stamps.take().op, range(500)))
    assert sorted(op for op in taken if op is not None) == list(range(1, 501))


def test_a_failed_request_does_not_give_its_number_back() -> None:
    stamps = Stamps(Stamp(Token(7), op=1))
    with contextlib.suppress(RuntimeError), stamps.request() as stamp:
        assert stamp.op == 1
        raise RuntimeError
    with stamps.request() as stamp:
        assert stamp.op == 2


def test_reads_take_no_number_and_foreign_requests_have_none() -> None:
    stamps = Stamps(Stamp(Token(7), op=4))
    assert stamps.reading().op is None
    assert stamps.take().op == 4
    foreign = Stamps(Stamp(Token(7)))
    assert foreign.take().op is None
    assert foreign.take().op is None


def test_one_request_at_a_time() -> None:
    stamps = Stamps(Stamp(Token(7), op=1))
    under_way = 0
    most = 0
    counting = threading.Lock()

    def send(_: int) -> None:
        nonlocal under_way, most
        with stamps.request():
            with counting:
                under_way += 1
                most = max(most, under_way)
            with counting:
                under_way -= 1

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(send, range(200)))
    assert most == 1


def test_a_grant_that_is_over_takes_no_number() -> None:
    over = RuntimeError("over")

    def check() -> None:
        raise over

    stamps = Stamps(Stamp(Token(7), op=1), check)
    for take in (stamps.take, stamps.reading):
        with pytest.raises(RuntimeError, match="over"):
            take()


def test_a_stamp_from_elsewhere_counts_on_and_claims_once() -> None:
    store = MemoryReceiver()
    stamp = Stamp(Token(7), "n/l", "h", Mode.WRITE, 5)
    report = store.claim("report", stamp)
    report.write(b"x")
    mark = store.mark("report")
    assert mark is not None
    assert mark.op == 6
    with pytest.raises(OutOfOrder):
        store.claim("report", stamp)
    assert StampedClaimant(stamp).stamps("report").take() == stamp


@pytest.mark.parametrize("nobody", [7, Token(7), None, "7"])
def test_nothing_but_a_grant_or_a_stamp_claims(nobody: object) -> None:
    store = MemoryReceiver()
    with pytest.raises(TypeError, match="Grant or a Stamp"):
        store.claim("report", nobody)  # type: ignore[arg-type]
    assert store.mark("report") is None
