"""contenders() and holder(): whose turn it is, as the nodes tell."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

import pytest
from kazoo.client import KazooClient

import zkfence
from zkfence import FencedLock, FencedReadLock, FencedSemaphore, FencedWriteLock, NotConnected
from zkfence._core._operations import Flight
from zkfence._lock_base import LockBase

from .conftest import Faults, Line

Connect = Callable[..., zkfence.Client]


def test_a_lock_that_was_never_used_has_no_contenders(lock: FencedLock) -> None:
    assert list(lock.contenders()) == []
    assert lock.holder() is None
    lock.acquire().release()
    assert list(lock.contenders()) == []
    assert lock.holder() is None


def test_who_holds_and_who_waits_in_line(
    zk: zkfence.Client, other_zk: zkfence.Client, zkfence_namespace: str, line: Line
) -> None:
    before = time.time()
    held = line.stand(FencedLock(zk, "a", namespace=zkfence_namespace, info="nightly: é 🔒"))
    waiting = [line.stand(FencedLock(client, "a", namespace=zkfence_namespace)) for client in (other_zk, zk)]
    asked = FencedLock(other_zk, "a", namespace=zkfence_namespace)
    first, second, third = asked.contenders()
    grant = held.grant
    assert (first.holds, second.holds, third.holds) == (True, False, False)
    assert (first.token, first.holder, first.path) == (grant.token, grant.holder, grant.path)
    assert (first.host, first.pid, first.info) == (socket.gethostname(), os.getpid(), "nightly: é 🔒")
    assert first.mode == "write"
    assert before - 1 <= first.since <= second.since <= third.since <= time.time() + 1
    assert (first.session_id, second.session_id) == (zk.client_id[0], other_zk.client_id[0])
    assert asked.holder() == first
    held.release()
    assert waiting[0].grant.token == second.token
    now = asked.holder()
    assert now is not None
    assert (now.path, now.holds) == (second.path, True)
    for party in waiting:
        party.release()


def test_readers_hold_together(zk: zkfence.Client, zkfence_namespace: str, line: Line) -> None:
    kinds = [FencedReadLock, FencedReadLock, FencedWriteLock, FencedReadLock]
    parties = [line.stand(kind(zk, "a", namespace=zkfence_namespace)) for kind in kinds]
    listed = parties[0].lock.contenders()
    assert [(each.mode, each.holds) for each in listed] == [
        ("read", True), ("read", True), ("write", False), ("read", False),
    ]  # fmt: skip
    first = parties[2].lock.holder()
    assert first is not None
    assert first.token == parties[0].grant.token
    for party in parties:
        party.release()


def test_a_semaphores_holders_are_told_with_the_tokens_of_their_slots(
    zk: zkfence.Client, other_zk: zkfence.Client, zkfence_namespace: str, line: Line
) -> None:
    def make(client: zkfence.Client) -> FencedSemaphore:
        return FencedSemaphore(client, "s", permits=2, namespace=zkfence_namespace)

    parties = [line.stand(make(zk)), line.stand(make(other_zk)), line.stand(make(zk))]
    listed = make(other_zk).contenders()
    assert [each.holds for each in listed] == [True, True, False]
    assert [each.token for each in listed] == [parties[0].grant.token, parties[1].grant.token, None]
    assert [each.holder for each in listed[:2]] == [party.grant.holder for party in parties[:2]]
    for party in parties:
        party.release()


def test_those_in_older_epochs_come_first(
    zk: zkfence.Client, zkfence_namespace: str, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LockBase, "_ceiling", 1)
    parties = [line.stand(FencedLock(zk, "a", namespace=zkfence_namespace)) for _ in range(3)]
    listed = parties[0].lock.contenders()
    assert [(each.token.dotted, each.holds) for each in listed if each.token] == [
        ("1.0", True), ("2.0", False), ("3.0", False),
    ]  # fmt: skip
    for party in parties:
        party.release()


JUNK = [b"", b"\xff\xfe", b"[]", b"7", b"null", b'{"v":1}', b'{"guid":1,"pid":"x","since":"y","host":[],"info":{}}']


@pytest.mark.parametrize("data", JUNK)
def test_junk_in_a_contenders_node_is_no_obstacle(lock: FencedLock, zk: KazooClient, data: bytes) -> None:
    with lock as grant:
        zk.set(grant.path, data)
        (only,) = lock.contenders()
        assert (only.holder, only.host, only.pid, only.info, only.since) == ("", "", 0, "", 0.0)
        assert (only.token, only.path, only.holds) == (grant.token, grant.path, True)


@pytest.mark.timeout(30)
def test_unrelated_nodes_are_not_told_of(lock: FencedLock, zk: KazooClient) -> None:
    with lock as grant:
        counter = grant.path.rpartition("/")[0]
        path = counter.rpartition("/")[0]
        for name in (
            "note",
            "x-",
            "x-12",
            "s0-0000000000",
            "s1001-0000000000",
            "s999999999-0000000000",
            "q-0000000001",
        ):
            zk.create(f"{counter}/{name}")
        for name in ("note", "0", "007", "\u0663", "99999999999", "-1", "9" * 5000):
            zk.create(f"{path}/{name}")
            zk.create(f"{path}/{name}/x-0000000000")
        assert [each.path for each in lock.contenders()] == [grant.path]
    lock.acquire(timeout=5).release()


def test_many_are_listed_in_few_flights(zk: zkfence.Client, zkfence_namespace: str, faults: Faults) -> None:
    lock = FencedSemaphore(zk, "s", permits=1000, namespace=zkfence_namespace)
    grants = [lock.acquire(timeout=10) for _ in range(20)]
    faults.effects.clear()
    assert [each.token for each in lock.contenders()] == [grant.token for grant in grants]
    assert sum(isinstance(effect, Flight) for effect in faults.effects) < 30
    for grant in grants:
        grant.release()


def test_a_client_that_is_not_started_is_told_of(zkfence_namespace: str) -> None:
    lock = FencedLock(zkfence.Client("127.0.0.1:1"), "a", namespace=zkfence_namespace)
    with pytest.raises(NotConnected, match="start"):
        lock.contenders()
