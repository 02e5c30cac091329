"""Losing: a grant that is over says so, once and for good; and nothing else breaks."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkfence
from zkfence import FencedLock, ForkedError, Grant, GrantReleased, LockLost
from zkfence._holding import Holding
from zkfence_receivers import MemoryReceiver, StaleToken

from .conftest import Background, Nodes

Start = Callable[[Callable[[], Any]], Background]
Eventually = Callable[..., None]


def test_a_deleted_node_is_a_lost_grant(lock: FencedLock, other: FencedLock, nodes: Nodes, zk: KazooClient) -> None:
    with lock as grant:
        zk.delete(grant.path)
        assert grant.lost.wait(1.0)
        with pytest.raises(LockLost, match="deleted"):
            grant.check()
        with other.acquire(timeout=5) as next_grant:
            assert next_grant.token > grant.token
            grant.release()
            assert nodes.contenders("a") == [next_grant.path], "release deletes nothing else"


def test_a_node_that_is_changed_and_then_deleted_is_still_watched(lock: FencedLock, other_zk: KazooClient) -> None:
    with lock as grant:
        for value in (b"1", b"2", b"3"):
            other_zk.set(grant.path, value)
        assert not grant.lost.wait(0.2)
        other_zk.delete(grant.path)
        assert grant.lost.wait(1.0)


def test_the_end_of_the_session_is_a_lost_grant_and_a_new_acquire_works(
    lock: FencedLock, zk: KazooClient, end_session: Callable[[KazooClient], None]
) -> None:
    grant = lock.acquire()
    end_session(zk)
    assert grant.lost.wait(10)
    with pytest.raises(LockLost, match="session"):
        grant.stamp("r")
    with lock.acquire(timeout=10) as again:
        assert again.token > grant.token
        grant.release()
        again.check()


def test_a_waiter_whose_session_ends_queues_anew(
    lock: FencedLock, other: FencedLock, other_zk: KazooClient, nodes: Nodes, in_background: Start,
    end_session: Callable[[KazooClient], None], eventually: Eventually,
) -> None:  # fmt: skip
    grant = lock.acquire()
    waiting = in_background(lambda: other.acquire(timeout=20))
    eventually(lambda: len(nodes.contenders("a")) == 2, "it stands in line")
    dead = nodes.contenders("a")[1]
    end_session(other_zk)
    eventually(lambda: len(nodes.contenders("a")) == 2 and dead not in nodes.contenders("a"), "it stands in line anew")
    grant.release()
    granted: Grant = waiting.result()
    assert granted.path != dead
    granted.check()
    granted.release()


def test_a_waiter_whose_node_is_deleted_queues_anew(
    lock: FencedLock, other: FencedLock, zk: KazooClient, nodes: Nodes, in_background: Start, eventually: Eventually
) -> None:
    with lock:
        waiting = in_background(lambda: other.acquire(timeout=20))
        eventually(lambda: len(nodes.contenders("a")) == 2, "it stands in line")
        dead = nodes.contenders("a")[1]
        zk.delete(dead)
        eventually(lambda: len(nodes.contenders("a")) == 2 and dead not in nodes.contenders("a"), "in line anew")
    waiting.result().release()


def test_a_waiter_whose_node_is_changed_and_then_deleted_queues_anew(
    lock: FencedLock, other: FencedLock, zk: KazooClient, nodes: Nodes, in_background: Start, eventually: Eventually
) -> None:
    with lock:
        waiting = in_background(lambda: other.acquire(timeout=20))
        eventually(lambda: len(nodes.contenders("a")) == 2, "it stands in line")
        own = nodes.contenders("a")[1]
        for value in (b"1", b"2", b"3"):
            zk.set(own, value)
        zk.delete(own)
        eventually(lambda: len(nodes.contenders("a")) == 2 and own not in nodes.contenders("a"), "in line anew")
        assert not waiting.done
    waiting.result().release()


def test_on_lost_may_release_acquire_and_call_zookeeper(
    lock: FencedLock, zk: KazooClient, other_zk: KazooClient
) -> None:
    again: list[Grant] = []
    done = threading.Event()

    def lost(grant: Grant) -> None:
        grant.release()
        zk.get_children("/")
        again.append(lock.acquire(timeout=5))
        done.set()

    grant = lock.acquire()
    grant.on_lost(lambda grant: 1 / 0)  # one that fails does not stop the others
    grant.on_lost(lost)
    other_zk.delete(grant.path)
    assert done.wait(5)
    assert again[0].token > grant.token
    late = threading.Event()
    again[0].release()
    again[0].on_lost(lambda grant: late.set())
    assert not late.wait(0.1), "a release is no loss"


def test_a_lost_grant_stays_lost_behind_its_release(lock: FencedLock, other_zk: KazooClient) -> None:
    grant = lock.acquire()
    other_zk.delete(grant.path)
    assert grant.lost.wait(1)
    with lock.acquire(timeout=5):
        grant.release()
    assert grant._holding.state.name == "LOST"
    late = threading.Event()
    grant.on_lost(lambda grant: late.set())
    assert late.wait(1)
    released = lock.acquire()
    released.release()
    assert not released.lost.is_set()


def test_on_lost_of_a_lost_grant_is_called_at_once(lock: FencedLock, other_zk: KazooClient) -> None:
    grant = lock.acquire()
    other_zk.delete(grant.path)
    assert grant.lost.wait(1)
    called = threading.Event()
    grant.on_lost(lambda grant: called.set())
    assert called.wait(1)


def test_a_handle_of_a_grant_that_is_over_sends_nothing(lock: FencedLock, other_zk: KazooClient) -> None:
    store = MemoryReceiver()
    grant = lock.acquire()
    report = store.claim("report-7", grant)
    report.write(b"1")
    other_zk.delete(grant.path)
    assert grant.lost.wait(1)
    mark = store.mark("report-7")
    for request in (lambda: report.write(b"2"), report.read, report.delete, lambda: store.claim("x", grant)):
        with pytest.raises(LockLost):
            request()
    assert store.mark("report-7") == mark
    released = lock.acquire()
    released.release()
    with pytest.raises(GrantReleased):
        store.claim("report-7", released)
    assert store.mark("report-7") == mark


def test_a_stamp_taken_before_the_loss_is_refused_by_the_receiver(lock: FencedLock, other: FencedLock) -> None:
    store = MemoryReceiver()
    with lock as old:
        store.claim("report-7", old).write(b"old")
        under_way = old.stamp("report-7")
    with other as new:
        report = store.claim("report-7", new)
        with pytest.raises(StaleToken) as caught:
            store.apply_stamped("report-7", b"late", under_way)
        assert report.read() == b"old"
    assert (caught.value.stamp.token, caught.value.mark and caught.value.mark.token) == (old.token, new.token)


def test_requests_of_two_handles_of_one_grant_share_their_numbers(lock: FencedLock) -> None:
    store = MemoryReceiver()
    with lock as grant:
        one, two = store.claim("r", grant), store.claim("r", grant)
        for handle, data in ((one, b"1"), (two, b"2"), (one, b"3"), (store.claim("r", grant), b"4")):
            handle.write(data)
            assert two.read() == data


def test_a_grant_refuses_to_be_pickled(lock: FencedLock) -> None:
    with lock as grant, pytest.raises(TypeError, match="stamp"):
        pickle.dumps(grant)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork beside threads is the very thing that is tested
def test_a_forked_child_holds_nothing(lock: FencedLock, nodes: Nodes) -> None:
    with lock as grant:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                grant.check()
            except ForkedError:
                grant.release()
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert nodes.contenders("a") == [grant.path]
        grant.check()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_cannot_acquire_on_its_parents_client(lock: FencedLock) -> None:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            lock.acquire(timeout=5)
        except ForkedError:
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_session_that_ended_before_the_grant_could_be_told_is_a_lost_grant(
    lock: FencedLock, monkeypatch: pytest.MonkeyPatch, nodes: Nodes
) -> None:
    session = lock._session
    hold = session.hold

    def hold_too_late(holding: Holding) -> None:
        session_id, session._session_id = session._session_id, None
        hold(holding)
        session._session_id = session_id

    monkeypatch.setattr(session, "hold", hold_too_late)
    grant = lock.acquire()
    assert grant.lost.is_set()
    with pytest.raises(LockLost, match="session"):
        grant.check()


def test_a_callback_that_gets_no_thread_keeps_no_other_grant_from_being_told(
    zk: zkfence.Client, zkfence_namespace: str, end_session: Callable[[KazooClient], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A process that holds many locks may not be able to start as many threads at once."""
    grants = [FencedLock(zk, f"{number}", namespace=zkfence_namespace).acquire() for number in range(4)]
    spawn = zk.handler.spawn

    def out_of_threads(work: Callable[..., object], *arguments: Any) -> object:
        if getattr(work, "__func__", None) is Grant._call:
            raise RuntimeError("can't start new thread")
        return spawn(work, *arguments)

    for grant in grants:
        grant.on_lost(lambda grant: None)
    told = [grant.lost for grant in grants]
    monkeypatch.setattr(zk.handler, "spawn", out_of_threads)
    end_session(zk)
    assert all(event.wait(5) for event in told)
    FencedLock(zk, "a", namespace=zkfence_namespace).acquire(timeout=10).release()  # the next session is proved
    for grant in grants:
        with pytest.raises(LockLost):
            grant.check()
