"""Waiting for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], timeout: float, *, every: float = 0.02) -> T:
    """Ask ``condition`` until it says something true or ``timeout`` seconds have passed; return its last answer.

    It is asked at least once, and once more after the deadline: a slow machine is no reason for a wrong answer.
    """
    deadline = time.monotonic() + timeout
    while True:
        late = time.monotonic() >= deadline
        answer = condition()
        if answer or late:
            return answer
        time.sleep(every)
