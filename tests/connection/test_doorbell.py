"""The bell that wakes the connection's thread."""

from __future__ import annotations

import contextlib
import select
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator

import pytest

from zkfence._connection._doorbell import Doorbell


@pytest.fixture
def bell() -> Iterator[Doorbell]:
    with contextlib.closing(Doorbell()) as bell:
        yield bell


def sleep_on(bell: Doorbell, timeout: float) -> bool:
    """As the connection's thread does; tells whether it was woken, or did not have to sleep."""
    poller = select.poll()
    poller.register(bell, select.POLLIN)
    may = bell.doze()
    events = poller.poll(timeout * 1000 if may else 0)
    bell.rouse(rung=bool(events))
    return not may or bool(events)


def test_it_counts_rings(bell: Doorbell) -> None:
    assert bell.send(b"\0") == 1
    bell.send(b"\0")
    assert bell.at_hand
    assert (bell.recv(1), bell.recv(1)) == (b"\0", b"\0")
    assert not bell.at_hand
    with pytest.raises(BlockingIOError):
        bell.recv(1)


def test_ringing_never_blocks_though_nobody_answers(bell: Doorbell) -> None:
    bell.doze()
    for _ in range(100_000):
        bell.send(b"\0")
    assert sleep_on(bell, 10)


def test_a_ring_before_the_sleep_prevents_it(bell: Doorbell) -> None:
    bell.send(b"\0")
    assert not bell.doze()


def test_a_ring_ends_the_sleep(bell: Doorbell) -> None:
    ringer = threading.Timer(0.05, bell.send, [b"\0"])
    ringer.start()
    assert sleep_on(bell, 10)
    ringer.join()


class Interleaved(deque[None]):
    """The rings of a bell, where something happens in another thread at the worst moment."""

    def __init__(
        self, *, before_counting: Callable[[], object] = bool, after_looking: Callable[[], object] = bool
    ) -> None:
        super().__init__()
        self._before_counting = before_counting
        self._after_looking = after_looking

    def append(self, ring: None) -> None:
        self._before_counting()
        super().append(ring)

    def __len__(self) -> int:
        seen = super().__len__()
        happen, self._after_looking = self._after_looking, bool
        happen()
        return seen


def test_a_thread_that_falls_asleep_before_the_ring_is_counted_is_woken(bell: Doorbell) -> None:
    bell._rings = Interleaved(before_counting=bell.doze)
    bell.send(b"\0")
    assert select.select([bell], [], [], 0)[0]


def test_a_thread_is_woken_by_a_ring_that_comes_after_its_last_look(bell: Doorbell) -> None:
    bell._rings = Interleaved(after_looking=lambda: bell.send(b"\0"))
    assert bell.doze()
    assert select.select([bell], [], [], 0)[0]


def test_a_closed_bell_cannot_be_rung_in_a_sleep(bell: Doorbell) -> None:
    bell.doze()
    bell.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        bell.send(b"\0")


def test_no_ring_is_lost_between_the_last_look_and_the_sleep(bell: Doorbell) -> None:
    work: deque[int] = deque()
    done = threading.Semaphore(0)
    missed = []

    def loop() -> None:
        handled = 0
        while handled < 5_000:
            bell.answer()
            while work:
                work.popleft()
                handled += 1
                done.release()
            if not sleep_on(bell, 5):
                missed.append(handled)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread = threading.Thread(target=loop)
        thread.start()
        for number in range(5_000):
            work.append(number)
            bell.send(b"\0")
            assert done.acquire(timeout=4), "a ring was lost"
        bell.send(b"\0")
        thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not missed
