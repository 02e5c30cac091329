"""One thread and one lock twice: told where it would wait for itself, or given the same token again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkfence
from zkfence import (
    FencedLock,
    FencedReadLock,
    FencedSemaphore,
    FencedWriteLock,
    GrantReleased,
    LockLost,
    LockTimeout,
    WouldDeadlock,
    _lock_base,
)
from zkfence._lock import _Lock
from zkfence_receivers import MemoryReceiver

from .conftest import Background, Nodes

Start = Callable[[Callable[[], Any]], Background]
Eventually = Callable[..., None]


@pytest.fixture
def reentrant(zk: zkfence.Client, zkfence_namespace: str) -> FencedLock:
    return FencedLock(zk, "a", namespace=zkfence_namespace, reentrant=True)


# --- not reentrant ----------------------------------------------------------------------------------------------


def test_a_thread_that_would_wait_for_itself_is_told(lock: FencedLock, nodes: Nodes) -> None:
    with lock as grant:
        for acquire in (lock.acquire, lambda: lock.acquire(timeout=5), lock.__enter__):
            with pytest.raises(WouldDeadlock, match=grant.token.dotted):
                acquire()
        assert nodes.contenders("a") == [grant.path], "it was told before anything was sent"
        grant.check()
    lock.acquire(timeout=5).release()


def test_it_is_told_of_what_it_holds_through_another_object_of_the_same_client(
    lock: FencedLock, zk: zkfence.Client, zkfence_namespace: str
) -> None:
    twin = FencedLock(zk, "a", namespace=zkfence_namespace)
    namesake = FencedLock(zk, "a", namespace=f"{zkfence_namespace}/elsewhere")
    with lock:
        with pytest.raises(WouldDeadlock):
            twin.acquire()
        namesake.acquire(timeout=5).release()
    twin.acquire(timeout=5).release()


@pytest.mark.parametrize("first", [FencedReadLock, FencedWriteLock])
@pytest.mark.parametrize("second", [FencedReadLock, FencedWriteLock])
@pytest.mark.parametrize("option", [False, True], ids=["plain", "reentrant"])
def test_reading_and_writing_at_once_is_told_too(
    zk: zkfence.Client, zkfence_namespace: str, first: type[Any], second: type[Any], option: bool
) -> None:
    """Two reads as well: a writer that comes between would stop the second one for ever."""
    one: _Lock = first(zk, "a", namespace=zkfence_namespace, reentrant=option)
    two: _Lock = second(zk, "a", namespace=zkfence_namespace, reentrant=option)
    with one as grant:
        if option and first is second:
            with two as again:
                assert again.token == grant.token
        else:
            with pytest.raises(WouldDeadlock):
                two.acquire(timeout=5)


def test_trying_is_not_waiting(lock: FencedLock) -> None:
    with lock:
        assert lock.try_acquire() is None
        with pytest.raises(LockTimeout):
            lock.acquire(timeout=0)


def test_another_thread_waits_its_turn(
    lock: FencedLock, in_background: Start, nodes: Nodes, eventually: Eventually
) -> None:
    grant = lock.acquire()
    waiting = in_background(lambda: lock.acquire(timeout=20))
    eventually(lambda: len(nodes.contenders("a")) == 2, "it stands in line")
    grant.release()
    waiting.result().release()


def test_a_grant_that_another_thread_released_is_held_no_more(lock: FencedLock, in_background: Start) -> None:
    grant = lock.acquire()
    in_background(grant.release).result()
    lock.acquire(timeout=5).release()


def test_after_a_loss_the_same_thread_acquires_anew(lock: FencedLock, other_zk: KazooClient) -> None:
    with lock as lost:
        other_zk.delete(lost.path)
        assert lost.lost.wait(2)
        with lock.acquire(timeout=5) as grant:
            assert grant.token > lost.token


def test_a_thread_is_not_taken_for_an_ended_one_whose_number_it_has(lock: FencedLock) -> None:
    held: list[tuple[int, zkfence.Grant]] = []
    outcomes: list[object] = []

    def hold() -> None:
        held.append((threading.get_ident(), lock.acquire(timeout=5)))

    def wait() -> None:
        if threading.get_ident() == held[0][0]:
            try:
                lock.acquire(timeout=0.1)
            except zkfence.LockError as error:
                outcomes.append(type(error))

    run(hold)
    for _ in range(1000):
        run(wait)
        if outcomes:
            break
    else:
        pytest.skip("no thread was given the number of an earlier one")
    assert outcomes == [LockTimeout], "not WouldDeadlock"
    held[0][1].release()


def run(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


# --- reentrant --------------------------------------------------------------------------------------------------


def test_a_reentrant_lock_gives_the_same_token_again_until_the_last_release(
    reentrant: FencedLock, other: FencedLock, nodes: Nodes
) -> None:
    with reentrant as outer:
        with reentrant as inner, reentrant.acquire(timeout=5) as innermost:
            assert outer.token == inner.token == innermost.token
            assert outer.holder == innermost.holder
            assert len({id(grant) for grant in (outer, inner, innermost)}) == 3
            tried = reentrant.try_acquire()
            assert tried is not None
            tried.release()
        assert nodes.contenders("a") == [outer.path]
        assert other.try_acquire() is None
        outer.check()
        with pytest.raises(GrantReleased):
            inner.check()
    with other.acquire(timeout=5) as grant:
        assert grant.token > outer.token


def test_it_is_released_in_any_order_and_a_second_release_counts_for_nothing(
    reentrant: FencedLock, nodes: Nodes
) -> None:
    grants = [reentrant.acquire(timeout=5) for _ in range(4)]
    for number in (0, 2, 1):
        for _ in range(3):
            grants[number].release()
        grants[3].check()
        assert nodes.contenders("a") == [grants[3].path]
    grants[3].release()
    assert nodes.contenders("a") == []


def test_another_thread_may_release_and_does_not_re_enter(
    reentrant: FencedLock, nodes: Nodes, in_background: Start
) -> None:
    first, second = reentrant.acquire(timeout=5), reentrant.acquire(timeout=5)
    assert in_background(reentrant.try_acquire).result() is None
    in_background(second.release).result()
    first.check()
    in_background(first.release).result()
    assert nodes.contenders("a") == []


def test_it_re_enters_through_another_object_of_the_same_client(
    reentrant: FencedLock, zk: zkfence.Client, zkfence_namespace: str
) -> None:
    twin = FencedWriteLock(zk, "a", namespace=zkfence_namespace, reentrant=True)
    with reentrant as one, twin as two:
        assert one.token == two.token


def test_a_loss_is_told_by_every_handle_and_the_next_one_is_a_new_token(
    reentrant: FencedLock, other_zk: KazooClient, nodes: Nodes
) -> None:
    first, second = reentrant.acquire(timeout=5), reentrant.acquire(timeout=5)
    told: list[zkfence.Grant] = []
    second.on_lost(told.append)
    other_zk.delete(first.path)
    assert first.lost.wait(2)
    assert second.lost.wait(2)
    for grant in (first, second):
        with pytest.raises(LockLost):
            grant.check()
    with reentrant.acquire(timeout=5) as again:
        assert again.token > first.token
        first.release()
        second.release()
        again.check()
        assert nodes.contenders("a") == [again.path]
    assert told in ([], [second])


def test_an_interrupted_release_of_one_handle_keeps_the_others(
    reentrant: FencedLock, nodes: Nodes, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    first, second = reentrant.acquire(timeout=5), reentrant.acquire(timeout=5)
    holding = first._holding
    give_back = holding.give_back
    calls: list[object] = []

    def interrupted(handle: object) -> bool:
        calls.append(handle)
        left = give_back(handle)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return left

    with monkeypatch.context() as patch:
        patch.setattr(type(holding), "give_back", lambda self, handle: interrupted(handle))
        with pytest.raises(KeyboardInterrupt):
            second.release()
    assert len(calls) == 2
    first.check()
    assert nodes.contenders("a") == [first.path]
    first.release()
    assert nodes.contenders("a") == []


@pytest.mark.parametrize("over", ["released", "lost"])
def test_one_that_ends_while_it_is_being_re_entered_is_not_given(
    reentrant: FencedLock, other_zk: KazooClient, nodes: Nodes, monkeypatch: pytest.MonkeyPatch, over: str
) -> None:
    first = reentrant.acquire(timeout=5)
    again = _lock_base.LockBase._again

    def too_late(lock: FencedLock, owner: object, *, wait: bool) -> Any:
        holding = again(lock, owner, wait=wait)
        if holding is first._holding:
            if over == "released":
                first.release()
            else:
                other_zk.delete(first.path)
                assert first.lost.wait(2)
        return holding

    monkeypatch.setattr(_lock_base.LockBase, "_again", too_late)
    with reentrant.acquire(timeout=5) as second:
        second.check()
        assert second.token > first.token
        assert nodes.contenders("a") == [second.path]
    assert nodes.contenders("a") == []


def test_all_handles_count_their_requests_together(reentrant: FencedLock) -> None:
    store = MemoryReceiver()
    with reentrant as outer:
        report = store.claim("report", outer)
        report.write(b"1")
        with reentrant as inner:
            store.claim("report", inner).write(b"2")
            ops = [outer.stamp("report").op, inner.stamp("report").op, outer.stamp("report").op]
            assert ops == sorted(set(ops))
        report.write(b"3")
        assert report.read() == b"3"


def test_threads_that_enter_one_lock_object_for_the_first_time_at_once_leave_what_they_entered(
    zk: zkfence.Client, zkfence_namespace: str
) -> None:
    failures: list[BaseException] = []
    barrier = threading.Barrier(8)

    def enter(lock: FencedReadLock) -> None:
        try:
            barrier.wait()
            with lock as outer, lock as inner:
                assert outer.token == inner.token
        except BaseException as error:
            failures.append(error)

    for name in "abc":
        lock = FencedReadLock(zk, name, namespace=zkfence_namespace, reentrant=True)
        threads = [threading.Thread(target=enter, args=(lock,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
    assert not lock._session.held
    assert not lock._session._owned


def test_on_lost_of_a_handle_that_was_released_is_not_called(
    reentrant: FencedLock, other_zk: KazooClient, eventually: Eventually
) -> None:
    first, second = reentrant.acquire(timeout=5), reentrant.acquire(timeout=5)
    called: list[object] = []
    second.on_lost(called.append)
    first.on_lost(called.append)
    second.release()
    other_zk.delete(first.path)
    eventually(lambda: called != [], "the one that is held is told")
    assert called == [first]


# --- left in another thread than it was entered in ---------------------------------------------------------------


def test_a_lock_may_be_left_in_another_thread_than_it_was_entered_in(
    lock: FencedLock, nodes: Nodes, in_background: Start
) -> None:
    """As web servers do, that run the two halves of a generator in a pool of threads."""
    stack = ExitStack()
    grant = stack.enter_context(lock)
    in_background(stack.close).result()
    assert nodes.contenders("a") == []
    with pytest.raises(GrantReleased):
        grant.check()
    in_background(lambda: stack.enter_context(lock)).result()
    stack.close()
    assert nodes.contenders("a") == []
    with lock:
        pass


def test_a_thread_never_gives_back_what_several_others_have_entered(
    zk: zkfence.Client, zkfence_namespace: str, in_background: Start
) -> None:
    semaphore = FencedSemaphore(zk, "a", permits=3, namespace=zkfence_namespace)
    entered, leave = threading.Barrier(3), threading.Event()

    def work() -> None:
        with semaphore as grant:
            entered.wait(10)
            leave.wait(10)
            grant.check()

    workers = [in_background(work) for _ in range(2)]
    entered.wait(10)
    with pytest.raises(RuntimeError, match="whose grant"):
        semaphore.__exit__(None, None, None)
    leave.set()
    for worker in workers:
        worker.result()


def test_an_interrupt_while_a_lock_is_being_entered_gives_it_back(
    lock: FencedLock, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_lock_base.LockBase, "_enter", interrupted)
        with pytest.raises(KeyboardInterrupt), lock:
            pytest.fail("entered")
    assert nodes.contenders("a") == []
    with lock:
        pass
