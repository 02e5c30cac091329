"""Stamps: a grant's requests on a resource are numbered once and for all."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from zkfence_receivers import InvalidStamp, MemoryReceiver, Mode, OutOfOrder, Reply, Stamp, Token
from zkfence_receivers._receiver import Request
from zkfence_receivers.words import MAX_OP, StampedClaimant, Stamps


def test_numbers_are_taken_once_and_in_order() -> None:
    stamps = Stamps(Stamp(Token(7), op=1))
    with ThreadPoolExecutor(8) as threads:
        taken = list(threads.map(lambda _: stamps.take().op, range(500)))
    assert sorted(op for op in taken if op is not None) == list(range(1, 501))


def test_reads_take_no_number_and_foreign_requests_have_none() -> None:
    stamps = Stamps(Stamp(Token(7), op=4))
    assert (stamps.reading().op, stamps.reading().mode) == (None, Mode.READ), "it cannot write, wherever it goes"
    assert stamps.take().op == 4
    foreign = Stamps(Stamp(Token(7)))
    assert foreign.take().op is None
    assert foreign.take().op is None


class SlowStore(MemoryReceiver):
    """Tells how many requests were under way at once."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self._under_way = 0
        self.during: Callable[[], None] = lambda: None

    def _perform(self, request: Request) -> Reply:
        self._under_way += 1
        self.most = max(self.most, self._under_way)
        try:
            self.during()
            return super()._perform(request)
        finally:
            self._under_way -= 1


def test_one_request_of_a_grant_at_a_time_over_all_its_handles() -> None:
    store = SlowStore()

    class Grant:
        counter = Stamps(Stamp(Token(7), op=1))

        def stamps(self, resource: str) -> Stamps:
            return self.counter

    handles = [store.claim("r", Grant()) for _ in range(4)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: handles[number % 4].write(b"%d" % number), range(400)))
    assert store.most == 1
    mark = store.mark("r")
    assert mark is not None
    assert mark.op == 404


def test_a_failed_request_does_not_give_its_number_back() -> None:
    store = SlowStore()
    handle = store.claim("r", Stamp(Token(7), op=1))

    def fail() -> None:
        raise RuntimeError

    store.during = fail
    with pytest.raises(RuntimeError):
        handle.write(b"1")
    store.during = lambda: None
    handle.write(b"2")
    mark = store.mark("r")
    assert mark is not None
    assert mark.op == 3


def test_a_grant_that_is_over_does_not_wait_for_its_turn() -> None:
    """In a forked child, the thread whose turn it was is not there."""
    stamps = Stamps(Stamp(Token(7), op=1), lambda: (_ for _ in ()).throw(RuntimeError("over")))

    class Grant:
        def stamps(self, resource: str) -> Stamps:
            return stamps

    with stamps.turn, pytest.raises(RuntimeError, match="over"):
        MemoryReceiver().claim("r", Grant())


def test_the_last_number_of_all_can_be_used() -> None:
    stamps = Stamps(Stamp(Token(7), op=MAX_OP))
    assert stamps.take().op == MAX_OP
    with pytest.raises(InvalidStamp):
        stamps.take()


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
