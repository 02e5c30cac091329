"""Interrupts at the places where they hurt most: Ctrl-C comes between any two steps."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import zkfence
from zkfence import FencedLock, LockTimeout, _threads
from zkfence._core._operations import Create
from zkfence._kazoo import Answers

from .conftest import Nodes

Eventually = Callable[..., None]


def once(function: Callable[..., Any], error: BaseException) -> Callable[..., Any]:
    """Raises ``error`` instead of the first call."""
    raised: list[bool] = []

    def call(*arguments: Any, **options: Any) -> Any:
        if not raised:
            raised.append(True)
            raise error
        return function(*arguments, **options)

    return call


@pytest.mark.parametrize("step", ["drop", "run_errand"])
def test_an_interrupted_release_releases_all_the_same(
    lock: FencedLock, nodes: Nodes, monkeypatch: pytest.MonkeyPatch, step: str, eventually: Eventually
) -> None:
    grant = lock.acquire()
    session = lock._session
    if step == "drop":
        monkeypatch.setattr(session, "drop", once(session.drop, KeyboardInterrupt()))
    else:
        monkeypatch.setattr("zkfence._grant.leave_now", once(_threads.leave_now, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        grant.release()
    eventually(lambda: nodes.contenders("a") == [], "the node is gone", within=1.0)


def test_a_background_thread_that_could_not_be_started_is_started_with_the_next_errand(
    lock: FencedLock, zk: zkfence.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = threading.Event()
    monkeypatch.setattr(zk.handler, "spawn", once(zk.handler.spawn, RuntimeError("can't start new thread")))
    with pytest.raises(RuntimeError):
        lock._session.run_errand(lambda: None)
    lock._session.run_errand(done.set)
    assert done.wait(1)


def test_a_request_whose_wake_up_was_interrupted_does_not_hold_up_the_later_ones(
    lock: FencedLock, zk: zkfence.Client, nodes: Nodes, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    lock.acquire().release()

    class Deaf:
        """The connection's wake-up socket, with a Ctrl-C instead of the first byte."""

        def __init__(self, socket: Any) -> None:
            self._socket = socket
            self.send = once(socket.send, KeyboardInterrupt())

        def __getattr__(self, name: str) -> Any:
            return getattr(self._socket, name)

    monkeypatch.setattr(zk._connection, "_write_sock", Deaf(zk._connection._write_sock))
    with contextlib.suppress(KeyboardInterrupt):  # kazoo 2.11 takes it for a closed connection
        lock.acquire(timeout=5).release()
    lock.acquire(timeout=5).release()
    eventually(lambda: nodes.contenders("a") == [], "nothing stays behind", within=1.0)


def test_an_interrupt_after_the_request_was_queued_does_not_hold_up_the_later_ones(
    lock: FencedLock, zk: zkfence.Client, nodes: Nodes, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    lock.acquire().release()

    def queue_without_waking(calls: Sequence[tuple[object, object]]) -> None:
        zk._queue.extend(calls)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(zk, "call_all", queue_without_waking)
        with pytest.raises(KeyboardInterrupt):
            lock.acquire(timeout=5)
    eventually(lambda: nodes.contenders("a") == [], "nothing stays behind", within=1.0)
    lock.acquire(timeout=5).release()


def test_a_deadline_in_the_background_is_no_deadline_of_the_caller(lock: FencedLock, other: FencedLock) -> None:
    with lock:
        for _ in range(3):
            with pytest.raises(LockTimeout):
                other.acquire(timeout=0.01)


def test_a_request_that_kazoo_has_lost_is_not_waited_for_for_ever(
    lock: FencedLock, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was queued in the very moment in which the session ended, say."""
    lock.acquire().release()
    session, send = lock._session, lock._session.kazoo.send
    lost: list[Answers] = []

    def lose_one(operations: Any, acl: Any, done: Any) -> Answers:
        if lost or not isinstance(operations[0], Create):
            return send(operations, acl, done)
        session._connection += 1
        lost.append(Answers(len(operations), done))
        return lost[0]

    monkeypatch.setattr(session.kazoo, "send", lose_one)
    with lock.acquire(timeout=10) as grant:
        assert lost
        assert nodes.contenders("a") == [grant.path]
