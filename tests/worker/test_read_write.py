"""Readers and writers: who holds beside whom, who waits for whom, and what their tokens do at a receiver."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

import zkfence
from zkfence import FencedLock, FencedReadLock, FencedWriteLock, LockLost, LockTimeout, Token
from zkfence._lock import _Lock
from zkfence._lock_base import LockBase
from zkfence_receivers import FileReceiver, MemoryReceiver, ReadOnlyStamp, StaleToken
from zkfence_receivers.words import Mode

from .conftest import Faults, Line, Nodes, Party

Eventually = Callable[..., None]
Connect = Callable[..., zkfence.Client]


class Locks:
    """Makes locks of one name, in either session."""

    def __init__(self, clients: tuple[zkfence.Client, ...], namespace: str) -> None:
        self.clients = clients
        self._namespace = namespace

    def reader(self, session: int = 0) -> FencedReadLock:
        return FencedReadLock(self.clients[session], "a", namespace=self._namespace)

    def writer(self, session: int = 0) -> FencedWriteLock:
        return FencedWriteLock(self.clients[session], "a", namespace=self._namespace)

    def any(self, chance: random.Random) -> _Lock:
        kind = chance.choice((FencedReadLock, FencedReadLock, FencedWriteLock, FencedLock))
        return kind(chance.choice(self.clients), "a", namespace=self._namespace)


@pytest.fixture
def locks(zk: zkfence.Client, other_zk: zkfence.Client, zkfence_namespace: str) -> Locks:
    return Locks((zk, other_zk), zkfence_namespace)


def test_readers_hold_side_by_side_and_keep_a_writer_out(locks: Locks, line: Line) -> None:
    readers = [line.stand(locks.reader(number % 2)) for number in range(3)]
    assert [party.grant.token.sequence for party in readers] == [0, 1, 2]
    assert all(party.grant.mode is Mode.READ for party in readers)
    writer = line.stand(locks.writer())
    for party in (readers[1], readers[2], readers[0]):
        assert not writer.granted
        party.release()
        line.settle()
    assert writer.grant.token > readers[2].grant.token
    writer.release()


def test_readers_behind_a_waiting_writer_wait_for_it(locks: Locks, line: Line) -> None:
    """Or a stream of readers would starve it."""
    first = line.stand(locks.reader())
    writer = line.stand(locks.writer(1))
    behind = [line.stand(locks.reader(number % 2)) for number in range(3)]
    assert locks.reader().try_acquire() is None
    assert not any(party.granted for party in behind)
    first.release()
    writer.grant.check()
    line.settle()
    assert not any(party.granted for party in behind)
    writer.release()
    tokens = [party.grant.token for party in behind]
    assert tokens == sorted(tokens)
    for party in behind:
        party.release()


@pytest.mark.parametrize("seed", range(3))
def test_whoever_comes_and_goes_exactly_those_hold_whose_turn_it_is(
    locks: Locks, line: Line, nodes: Nodes, eventually: Eventually, seed: int
) -> None:
    """Against the rule in three lines: FencedLock and FencedWriteLock of one name are the same kind."""
    chance = random.Random(seed)
    present: list[Party] = []

    def its_turn(position: int) -> bool:
        before = present[:position]
        return not (before if not reads(present[position]) else [party for party in before if not reads(party)])

    def reads(party: Party) -> bool:
        return isinstance(party.lock, FencedReadLock)

    coming = 14
    while coming or present:
        if coming and (len(present) < 2 or chance.random() < 0.6):
            coming -= 1
            present.append(line.stand(locks.any(chance)))
        else:
            leaving = chance.choice([party for party in present if party.granted])
            leaving.release()
            present.remove(leaving)
        expected = [its_turn(position) for position in range(len(present))]
        eventually(
            lambda expected=expected: [party.granted for party in present] == expected, f"{expected} hold", within=10
        )
        line.settle()
        assert [party.granted for party in present] == expected
    tokens = [party.grant.token for party in line.parties]
    assert tokens == sorted(set(tokens)), "tokens rise in the order of arrival"
    assert nodes.contenders("a") == []


class Interval:
    def __init__(self, token: Token, is_writer: bool, begun: int) -> None:
        self.token, self.is_writer, self.begun, self.ended = token, is_writer, begun, 0


@pytest.mark.parametrize("streaming", ["readers", "writers"])
def test_a_stream_of_one_kind_does_not_starve_the_other(
    locks: Locks, streaming: str, in_background: Callable[..., object], nodes: Nodes
) -> None:
    log: list[Interval] = []
    clock = iter(range(10**9))
    stop: list[bool] = []

    def hold(lock: _Lock) -> Interval:
        with lock.acquire(timeout=20) as grant:
            interval = Interval(grant.token, isinstance(lock, FencedLock), next(clock))
            log.append(interval)
            interval.ended = next(clock)
        return interval

    def stream(session: int) -> int:
        rounds = 0
        while not stop and rounds < 3000:
            hold(locks.reader(session) if streaming == "readers" else locks.writer(session))
            rounds += 1
        return rounds

    streams = [in_background(lambda session=session: stream(session % 2)) for session in range(4)]
    lone = [hold(locks.writer() if streaming == "readers" else locks.reader()) for _ in range(5)]
    stop.append(True)
    rounds = sum(each.result() for each in streams)  # type: ignore[attr-defined]
    assert rounds < 4 * 3000, "the stream ended first"
    tokens = [interval.token for interval in log]
    assert len(set(tokens)) == len(tokens) == rounds + len(lone)
    for one in log:
        for two in log:
            if one.token < two.token and (one.is_writer or two.is_writer):
                assert one.ended < two.begun, "a writer holds alone, and in its turn"
    assert nodes.contenders("a") == []


# --- who is woken -----------------------------------------------------------------------------------------------


def test_a_release_wakes_only_who_may_need_it(locks: Locks, line: Line) -> None:
    first, second = line.stand(locks.reader()), line.stand(locks.reader(1))
    writer = line.stand(locks.writer())
    readers = [line.stand(locks.reader(number % 2)) for number in range(4)]
    last = line.stand(locks.writer(1))
    waiting = (writer, *readers, last)
    assert [party.wakes for party in waiting] == [0, 0, 0, 0, 0, 0]
    first.release()
    line.settle()
    assert [party.wakes for party in waiting] == [0, 0, 0, 0, 0, 0], "the writer watches the last reader before it"
    second.release()
    writer.grant.check()
    line.settle()
    assert [party.wakes for party in waiting] == [1, 0, 0, 0, 0, 0]
    writer.release()
    for party in readers:
        party.grant.check()
    line.settle()
    assert [party.wakes for party in waiting] == [1, 1, 1, 1, 1, 0], "the readers together, the last writer not"
    for party in readers:
        party.release()
    last.release()
    assert last.wakes == 1


def test_a_waiting_reader_watches_the_last_writer_before_it_and_nobody_else(
    locks: Locks, line: Line, nodes: Nodes
) -> None:
    parties = [line.stand(locks.reader()), line.stand(locks.writer()), line.stand(locks.writer())]
    parties += [line.stand(locks.reader()), line.stand(locks.reader(1))]
    *_, last_writer, _, own = nodes.contenders("a")
    assert set(locks.clients[1]._data_watchers) == {own, last_writer}
    for party in parties:
        party.release()


# --- at a receiver ----------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryReceiver | FileReceiver]:
    if request.param == "memory":
        yield MemoryReceiver()
    else:
        with FileReceiver(tmp_path) as store:
            yield store


def test_a_reader_reads_and_is_refused_when_it_writes(locks: Locks, store: MemoryReceiver) -> None:
    with locks.writer() as grant:
        store.claim("report", grant).write(b"1")
    with locks.reader() as grant:
        report = store.claim("report", grant)
        assert report.read() == b"1"
        for request in (lambda: report.write(b"2"), report.delete):
            with pytest.raises(ReadOnlyStamp):
                request()
        with pytest.raises(ReadOnlyStamp):
            store.apply_stamped("report", b"2", grant.stamp("report"))
        assert report.read() == b"1"


def test_a_readers_claim_keeps_out_an_older_writer(locks: Locks, store: MemoryReceiver, other_zk: KazooClient) -> None:
    with locks.writer() as old:
        store.claim("report", old).write(b"old")
        late = old.stamp("report")
        other_zk.delete(old.path)
        with locks.reader(1).acquire(timeout=5) as reader:
            report = store.claim("report", reader)
            with pytest.raises(StaleToken):
                store.apply_stamped("report", b"late", late)
            assert report.read() == b"old"


def test_live_readers_do_not_shut_each_other_out(locks: Locks, store: MemoryReceiver) -> None:
    with locks.writer() as grant:
        store.claim("report", grant).write(b"1")
    with locks.reader() as older, locks.reader(1) as newer:
        before = store.claim("report", older)
        beside = store.claim("report", newer)
        assert before.read() == beside.read() == b"1"
        assert store.claim("report", older).read() == b"1", "an older reader may claim, too"
        assert before.read() == beside.read() == b"1"


def test_a_reader_that_lost_its_lock_does_not_read_what_a_newer_writer_wrote(
    locks: Locks, store: MemoryReceiver, other_zk: KazooClient
) -> None:
    with locks.reader() as old:
        store.claim("report", old)
        late = old.stamp("report")
        assert late.mode is Mode.READ
        other_zk.delete(old.path)
        with locks.writer(1).acquire(timeout=5) as writer:
            report = store.claim("report", writer)
            report.write(b"new")
            with pytest.raises(LockLost):
                old.stamp("report")
            with pytest.raises(StaleToken):
                store.claim("report", late)


# --- across a roll ----------------------------------------------------------------------------------------------


def test_readers_of_an_older_epoch_hold_beside_newer_ones_and_keep_writers_out(
    locks: Locks, line: Line, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LockBase, "_ceiling", 2)
    older = [line.stand(locks.reader()), line.stand(locks.reader(1))]
    newer = line.stand(locks.reader())
    assert [party.grant.token.dotted for party in (*older, newer)] == ["1.0", "1.1", "2.0"]
    writer = line.stand(locks.writer(1))
    behind = line.stand(locks.reader(1))
    assert nodes.epochs("a") == [1, 2, 3]
    for party in (older[0], newer, older[1]):
        assert not writer.granted
        assert not behind.granted
        party.release()
        line.settle()
    assert writer.grant.token.dotted == "2.1"
    assert not behind.granted
    writer.release()
    assert behind.grant.token.dotted == "3.0"
    behind.release()


def test_threads_that_share_a_lock_all_come_through_a_roll(
    locks: Locks, line: Line, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one of them learns of the older epochs holds for the others too: nobody waits for who is gone."""
    monkeypatch.setattr(LockBase, "_ceiling", 1)
    holder = line.stand(locks.reader(1))
    lock = locks.writer()
    assert lock.try_acquire() is None  # it remembers the new epoch from now on, and that the old one is not empty
    monkeypatch.setattr(LockBase, "_ceiling", 100)
    sharing = [line.stand(lock) for _ in range(3)]
    assert not sharing[0].granted
    effects = len(faults.effects)
    for party in (holder, *sharing):
        assert party.grant.token.epoch == (1 if party is holder else 2)
        party.release()
    assert len(faults.effects) - effects < 40, "nobody asks again and again"


# --- leaving and losing -----------------------------------------------------------------------------------------


def test_a_timeout_leaves_nothing_and_lets_those_behind_through(
    locks: Locks, line: Line, nodes: Nodes, eventually: Eventually
) -> None:
    holder = line.stand(locks.reader())
    writer = line.stand(locks.writer(1), timeout=1.0)
    behind = line.stand(locks.reader(1))
    assert not behind.granted
    with pytest.raises(LockTimeout):
        writer.acquiring.result()
    behind.grant.check()
    eventually(lambda: nodes.contenders("a") == [holder.grant.path, behind.grant.path], "the writer's node is gone")
    with pytest.raises(LockTimeout):
        locks.writer(1).acquire(timeout=0.1)
    assert locks.writer(1).try_acquire() is None
    eventually(lambda: len(nodes.contenders("a")) == 2, "nothing stays behind")
    holder.release()
    behind.release()


def test_a_reader_whose_node_is_deleted_loses_and_the_other_one_does_not(
    locks: Locks, line: Line, other_zk: KazooClient
) -> None:
    one, two = line.stand(locks.reader()), line.stand(locks.reader(1))
    writer = line.stand(locks.writer(1))
    other_zk.delete(one.grant.path)
    assert one.grant.lost.wait(2)
    line.settle()
    assert not writer.granted
    two.grant.check()
    two.release()
    writer.release()


def test_the_end_of_a_session_takes_its_readers_along(
    connect: Connect, locks: Locks, line: Line, zkfence_namespace: str, end_session: Callable[[KazooClient], None]
) -> None:
    third = connect()
    doomed = [line.stand(FencedReadLock(third, "a", namespace=zkfence_namespace)) for _ in range(2)]
    reader = line.stand(locks.reader())
    writer = line.stand(locks.writer())
    end_session(third)
    for party in doomed:
        assert party.grant.lost.wait(10)
    assert not writer.granted
    reader.release()
    writer.release()
    with FencedReadLock(third, "a", namespace=zkfence_namespace).acquire(timeout=10) as again:
        assert again.token > writer.grant.token


def test_a_waiting_reader_whose_node_is_deleted_queues_anew(
    locks: Locks, line: Line, nodes: Nodes, other_zk: KazooClient, eventually: Eventually
) -> None:
    writer = line.stand(locks.writer())
    reader = line.stand(locks.reader())
    dead = nodes.contenders("a")[1]
    other_zk.delete(dead)
    eventually(lambda: len(nodes.contenders("a")) == 2 and dead not in nodes.contenders("a"), "it stands in line anew")
    writer.release()
    assert reader.grant.path != dead
    reader.release()
