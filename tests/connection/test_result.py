"""The answer to one request."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.handlers.threading import KazooTimeoutError

from zkfence._connection._handler import Handler
from zkfence._connection._result import Result


@pytest.fixture
def handler() -> Iterator[Handler]:
    handler = Handler()
    handler.start()
    yield handler
    handler.stop()


def test_it_gives_the_value_to_everybody_who_waits(handler: Handler) -> None:
    result = handler.async_result()
    got: list[object] = []
    threads = [threading.Thread(target=lambda: got.append(result.get(timeout=10))) for _ in range(5)]
    for thread in threads:
        thread.start()
    result.set("x")
    for thread in threads:
        thread.join()
    assert got == ["x"] * 5
    assert result.get() == result.get_nowait() == result.value == "x"
    assert result.ready()
    assert result.successful()
    assert result.exception is None


def test_it_raises_the_exception(handler: Handler) -> None:
    result = handler.async_result()
    assert (result.ready(), result.successful(), result.exception) == (False, False, None)
    error = LookupError()
    result.set_exception(error)
    with pytest.raises(LookupError):
        result.get()
    assert result.ready()
    assert not result.successful()
    assert result.exception is error


def test_waiting_ends_with_its_timeout(handler: Handler) -> None:
    result = handler.async_result()
    started = time.monotonic()
    assert not result.wait(0.05)
    with pytest.raises(KazooTimeoutError):
        result.get(timeout=0.05)
    with pytest.raises(KazooTimeoutError):
        result.get_nowait()
    assert 0.09 < time.monotonic() - started < 5
    result.set(1)  # who has given up waiting is no obstacle
    assert result.get() == 1


def test_an_answer_that_comes_just_before_the_waiter_enters_itself_is_not_missed(handler: Handler) -> None:
    result = handler.async_result()

    class Waiters(deque[Any]):
        def append(self, waiter: Any) -> None:
            result.set(1)
            super().append(waiter)

    result._waiters = Waiters()
    started = time.monotonic()
    assert result.get(timeout=10) == 1
    assert time.monotonic() - started < 5


def test_no_answer_is_missed_by_many_threads(handler: Handler) -> None:
    for _ in range(300):
        result = handler.async_result()
        setter = threading.Thread(target=result.set)
        setter.start()
        result.get(timeout=10)
        setter.join()


def test_callbacks_run_in_the_thread_for_completions_once_each(handler: Handler) -> None:
    result = handler.async_result()
    called: list[tuple[str, threading.Thread, Result]] = []
    done = threading.Event()

    def before(of: Result) -> None:
        called.append(("before", threading.current_thread(), of))

    def after(of: Result) -> None:
        called.append(("after", threading.current_thread(), of))
        done.set()

    def never(of: Result) -> None:
        raise AssertionError

    result.rawlink(before)
    result.rawlink(before)
    result.rawlink(never)
    result.unlink(never)
    result.unlink(after)
    result.set(1)
    result.rawlink(after)
    assert done.wait(10)
    assert [(name, of) for name, _, of in called] == [("before", result), ("after", result)]
    threads = {thread for _, thread, _ in called}
    assert len(threads) == 1
    assert threading.current_thread() not in threads


def test_a_callback_that_is_no_users_needs_no_thread(handler: Handler) -> None:
    result = handler.async_result()
    called: list[threading.Thread] = []

    result.inward = True
    result.rawlink(lambda of: called.append(threading.current_thread()))
    result.set(1)
    assert called == [threading.current_thread()]


def test_a_callback_that_fails_once_the_handler_is_stopped_does_not_hurt_the_others(
    handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    handler.stop()
    result = handler.async_result()
    called = []
    result.rawlink(lambda of: 1 // 0)
    result.rawlink(called.append)
    result.set(1)
    assert called == [result]
    assert "ZeroDivisionError" in caplog.text
