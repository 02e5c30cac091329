"""FencedSemaphore: as many holders as permits, each in a slot of its own, whose tokens rise."""

from __future__ import annotations

import itertools
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

import zkfence
from zkfence import (
    FencedLock,
    FencedReadLock,
    FencedSemaphore,
    Grant,
    InvalidName,
    LockTimeout,
    MixedKinds,
    WouldDeadlock,
)
from zkfence._core._operations import Children, Create, Delete, Effect, Exists, Flight, Get, Jitter, Operation, Wait
from zkfence._lock_base import LockBase
from zkfence_receivers import MemoryReceiver, StaleToken, WrongLock

from .conftest import Background, Faults, Line, Nodes, contender_in

Start = Callable[[Callable[[], Any]], Background]
Eventually = Callable[..., None]
Connect = Callable[..., zkfence.Client]
Make = Callable[..., FencedSemaphore]


@pytest.fixture
def semaphore(zk: zkfence.Client, other_zk: zkfence.Client, zkfence_namespace: str) -> Make:
    """Semaphores of one name, in either session."""

    def make(permits: int = 2, session: int = 0) -> FencedSemaphore:
        return FencedSemaphore((zk, other_zk)[session], "s", permits=permits, namespace=zkfence_namespace)

    return make


class Left:
    """Looks for what a semaphore has left behind."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes

    def permits(self) -> list[str]:
        return self.nodes.contenders("s")

    def slots(self, permits: int) -> list[str]:
        return [path for slot in range(permits) for path in self.nodes.contenders(f"s%23{slot}")]

    def all(self, permits: int = 2) -> list[str]:
        return self.permits() + self.slots(permits)


@pytest.fixture
def left(nodes: Nodes) -> Left:
    return Left(nodes)


def release_all(grants: Sequence[Grant]) -> None:
    for grant in grants:
        grant.release()


# --- holding ----------------------------------------------------------------------------------------------------


def test_as_many_hold_as_there_are_permits_each_in_a_slot_of_its_own(semaphore: Make, left: Left) -> None:
    grants = [semaphore(3, number % 2).acquire(timeout=10) for number in range(3)]
    assert sorted(grant.slot or 0 for grant in grants) == [0, 1, 2]
    assert {grant.lock_name for grant in grants} == {"s#0", "s#1", "s#2"}
    assert semaphore(3, 1).try_acquire() is None
    with pytest.raises(LockTimeout):
        semaphore(3, 1).acquire(timeout=0.1)
    grants[1].release()
    with semaphore(3, 1).acquire(timeout=10) as grant:
        assert grant.slot == grants[1].slot
        assert grant.token > grants[1].token
    release_all(grants)
    assert left.all(3) == []


def test_one_permit_is_a_lock(semaphore: Make, left: Left) -> None:
    tokens = []
    for number in range(4):
        with semaphore(1, number % 2).acquire(timeout=10) as grant:
            assert grant.slot == 0
            assert semaphore(1, 1 - number % 2).try_acquire() is None
            tokens.append(grant.token)
    assert tokens == sorted(set(tokens))
    assert left.all(1) == []


def test_contenders_are_admitted_in_line_whoever_leaves(semaphore: Make, line: Line) -> None:
    chance = random.Random(1)
    holders = [line.stand(semaphore(3, number % 2)) for number in range(3)]
    waiting = [line.stand(semaphore(3, number % 2)) for number in range(6)]
    while waiting:
        leaving = chance.choice(holders)
        holders.remove(leaving)
        leaving.release()
        holders.append(waiting.pop(0))
        assert holders[-1].grant.remaining() > 0
        line.settle()
        assert not any(party.granted for party in waiting)
        assert len({party.grant.slot for party in holders}) == 3
    for party in holders:
        party.release()


def test_many_threads_in_two_sessions_are_never_more_than_the_permits(
    connect: Connect, zkfence_namespace: str, left: Left
) -> None:
    permits, rounds, threads_of_each = 3, 6, 10
    holding: set[int] = set()
    most: list[int] = []
    tokens: dict[int, list[int]] = defaultdict(list)
    failures: list[BaseException] = []

    def work(lock: FencedSemaphore) -> None:
        try:
            for _ in range(rounds):
                with lock.acquire(timeout=60) as grant:
                    assert grant.slot is not None
                    assert grant.slot not in holding, "two in one slot"
                    holding.add(grant.slot)
                    most.append(len(holding))
                    tokens[grant.slot].append(grant.token)
                    holding.discard(grant.slot)
        except BaseException as error:
            failures.append(error)

    shared = FencedSemaphore(connect(), "s", permits=permits, namespace=zkfence_namespace)
    client = connect()
    own = [FencedSemaphore(client, "s", permits=permits, namespace=zkfence_namespace) for _ in range(threads_of_each)]
    threads = [threading.Thread(target=work, args=(lock,)) for lock in ([shared] * threads_of_each + own)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sum(map(len, tokens.values())) == 2 * threads_of_each * rounds
    assert 1 <= max(most) <= permits
    for each in tokens.values():
        assert each == sorted(set(each)), "the tokens of one slot rise"
    assert left.all(permits) == []


def test_a_thousand_permits_cost_no_thousand_steps(
    semaphore: Make, zk: zkfence.Client, faults: Faults, left: Left
) -> None:
    lock = semaphore(1000)
    grants = []
    for _ in range(40):
        effects = len(faults.effects)
        grants.append(lock.acquire(timeout=10))
        assert len(faults.effects) - effects < 40
    assert len({grant.slot for grant in grants}) == 40
    release_all(grants)
    assert left.permits() == []


@pytest.mark.parametrize("permits", [0, -1, 1001, True, 2.0, "2", None])
def test_bad_permits_are_refused_at_once(zk: zkfence.Client, permits: Any) -> None:
    with pytest.raises(ValueError, match="permits"):
        FencedSemaphore(zk, "s", permits=permits)


def test_the_name_has_room_for_the_slot(zk: zkfence.Client) -> None:
    FencedSemaphore(zk, "x" * 251, permits=1000)
    with pytest.raises(InvalidName):
        FencedSemaphore(zk, "x" * 252, permits=1000)


# --- at a receiver ----------------------------------------------------------------------------------------------


def test_holders_do_not_fence_each_other_out_and_a_late_one_is_fenced_out_of_its_slot(
    semaphore: Make, other_zk: KazooClient
) -> None:
    store = MemoryReceiver()
    one, two = semaphore().acquire(timeout=10), semaphore(session=1).acquire(timeout=10)
    slots = {grant.slot: store.claim(f"resource-{grant.slot}", grant) for grant in (one, two)}
    assert len(slots) == 2
    for number in range(3):
        for handle in slots.values():
            handle.write(b"%d" % number)
    with pytest.raises(WrongLock):
        store.claim(f"resource-{one.slot}", two)
    late = one.stamp(f"resource-{one.slot}")
    other_zk.delete(one.path)
    assert one.lost.wait(2)
    one.release()
    with semaphore(session=1).acquire(timeout=10) as successor:
        assert successor.slot == one.slot
        report = store.claim(f"resource-{successor.slot}", successor)
        with pytest.raises(StaleToken):
            store.apply_stamped(f"resource-{one.slot}", b"late", late)
        report.write(b"next")
        slots[two.slot].write(b"still")
    two.release()


# --- mixing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["more permits", "lock", "reader"])
def test_another_kind_under_the_same_name_is_told_and_leaves_nothing(
    semaphore: Make, other_zk: zkfence.Client, zkfence_namespace: str, left: Left, other: str, eventually: Eventually
) -> None:
    mixed = {
        "more permits": semaphore(3, 1),
        "lock": FencedLock(other_zk, "s", namespace=zkfence_namespace),
        "reader": FencedReadLock(other_zk, "s", namespace=zkfence_namespace),
    }[other]
    for first, second in ((semaphore(2), mixed), (mixed, semaphore(2))):
        with first.acquire(timeout=10):
            held = left.all(3)
            with pytest.raises(MixedKinds) as caught:
                second.acquire(timeout=10)
            assert caught.value.path == left.permits()[0]
            with pytest.raises(MixedKinds):
                second.try_acquire()
            eventually(lambda held=held: left.all(3) == held, "nothing of it stays behind", within=2.0)
    with mixed.acquire(timeout=10):
        pass
    assert left.all(3) == []


# --- leaving and losing -----------------------------------------------------------------------------------------


def test_the_slot_is_left_before_the_permit(semaphore: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is admitted next finds it free."""
    lock = semaphore()
    grant = lock.acquire(timeout=10)
    sent: list[Operation] = []
    kazoo = lock._session.kazoo
    send = kazoo.send

    def record(operations: Sequence[Operation], *rest: Any) -> Any:
        sent.extend(operations)
        return send(operations, *rest)

    monkeypatch.setattr(kazoo, "send", record)
    grant.release()
    assert [each.path.rpartition("/")[2][0] for each in sent if isinstance(each, Delete)] == ["x", "s"]


def test_the_end_of_a_session_gives_its_permits_to_the_next_in_line(
    connect: Connect, semaphore: Make, line: Line, left: Left, zkfence_namespace: str,
    end_session: Callable[[KazooClient], None],
) -> None:  # fmt: skip
    third = connect()
    doomed = [line.stand(FencedSemaphore(third, "s", permits=2, namespace=zkfence_namespace)) for _ in range(2)]
    waiting = [line.stand(semaphore(2, number)) for number in range(2)]
    assert not any(party.granted for party in waiting)
    end_session(third)
    assert {party.grant.slot for party in waiting} == {0, 1}
    for party in doomed:
        assert party.grant.lost.wait(10)
        assert all(
            party.grant.token < next_party.grant.token for next_party in waiting if slots_equal(party, next_party)
        )
        party.release()
    for party in waiting:
        party.grant.check()
        party.release()
    assert left.all() == []


def slots_equal(one: Any, two: Any) -> bool:
    return bool(one.grant.slot == two.grant.slot)


@pytest.mark.parametrize("deleted", ["slot", "permit"])
def test_a_holder_whose_slot_or_permit_is_deleted_has_lost_both(
    semaphore: Make, other_zk: KazooClient, left: Left, deleted: str, eventually: Eventually
) -> None:
    """Also where it does not release: half a grant would keep out others for nothing."""
    grant, other = semaphore().acquire(timeout=10), semaphore(session=1).acquire(timeout=10)
    mine = [path for path in left.all() if other_zk.get(path)[1].ephemeralOwner == semaphore()._session.session_id]
    permit, slot = mine
    assert slot == grant.path
    other_zk.delete(slot if deleted == "slot" else permit)
    assert grant.lost.wait(2)
    eventually(lambda: not set(mine) & set(left.all()), "the other node is gone, too")
    other.check()
    with semaphore().acquire(timeout=10) as again:
        assert again.slot == grant.slot
        grant.release()
        again.check()
    other.release()
    assert left.all() == []


def test_a_permit_that_is_deleted_while_a_slot_is_looked_for_is_queued_for_anew(
    semaphore: Make, other_zk: KazooClient, left: Left, faults: Faults
) -> None:
    lock = semaphore()
    deleted: list[str] = []

    def before(effect: Effect) -> None:
        if not deleted and isinstance(effect, Flight) and any(isinstance(each, Exists) for each in effect.operations):
            deleted.extend(left.permits())
            other_zk.delete(deleted[0])

    faults.before = before
    with lock.acquire(timeout=10) as grant:
        grant.check()
        assert len(deleted) == 1
        assert left.permits() != deleted
        assert left.slots(2) == [grant.path]
    assert left.all() == []


@pytest.mark.parametrize("moment", ["looking", "taking"])
def test_a_session_that_ends_while_a_slot_is_looked_for_is_replaced_by_the_next_one(
    semaphore: Make, zk: zkfence.Client, left: Left, faults: Faults, moment: str,
    end_session: Callable[[KazooClient], None], eventually: Eventually,
) -> None:  # fmt: skip
    lock = semaphore()
    lock.acquire(timeout=10).release()
    ended: list[int | None] = []

    def before(effect: Effect) -> None:
        operations = effect.operations if isinstance(effect, Flight) else ()
        create = contender_in(effect)
        looking = any(isinstance(each, Exists) for each in operations)
        if not ended and (looking if moment == "looking" else create and "%23" in create.path):
            ended.append(lock._session.session_id)
            end_session(zk)
            eventually(lambda: lock._session.session_id not in (None, ended[0]), "there is a new one", within=10.0)

    faults.before = before
    with lock.acquire(timeout=20) as grant:
        assert ended
        grant.check()
        assert len(left.permits()) == 1
        assert left.slots(2) == [grant.path]
    assert left.all() == []


def test_a_timeout_leaves_neither_permit_nor_slot(semaphore: Make, left: Left, eventually: Eventually) -> None:
    grants = [semaphore().acquire(timeout=10), semaphore(session=1).acquire(timeout=10)]
    held = left.all()
    for _ in range(10):
        with pytest.raises(LockTimeout):
            semaphore(session=1).acquire(timeout=0.05)
        assert semaphore(session=1).try_acquire() is None
    eventually(lambda: left.all() == held, "only the holders are there")
    release_all(grants)


class Interrupt(BaseException):
    pass


@pytest.mark.parametrize("after_sending", [False, True], ids=["before sending", "after sending"])
@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
def test_an_interrupt_at_any_point_leaves_neither_permit_nor_slot(
    semaphore: Make, left: Left, faults: Faults, held: bool, after_sending: bool, in_background: Start,
    eventually: Eventually,
) -> None:  # fmt: skip
    other = semaphore(1, 1)
    other.acquire(timeout=10).release()
    faults.error, faults.after_sending = Interrupt(), after_sending
    interrupted = 0
    for point in itertools.count():
        lock = semaphore(1)  # remembers nothing yet: the longest way
        faults.raise_at = None
        grant = other.acquire(timeout=10) if held else None
        faults.effects.clear()
        faults.raise_at = point
        waiting = in_background(lambda lock=lock: lock.acquire(timeout=20))
        if grant is not None:
            eventually(
                lambda waiting=waiting: waiting.done or (faults.effects and isinstance(faults.effects[-1], Wait)),
                "it waits, or is interrupted",
            )
            grant.release()
        try:
            waiting.result().release()
        except Interrupt:
            interrupted += 1
        eventually(lambda: left.all(1) == [], f"nothing is left of the interrupt at {point}", within=2.0)
        if len(faults.effects) <= point:
            break
    assert interrupted >= (10 if held else 8)


# --- trying -----------------------------------------------------------------------------------------------------


def test_trying_gets_a_permit_that_is_free_however_many_try_other_slots_at_once(
    connect: Connect, zkfence_namespace: str
) -> None:
    permits = 4
    clients = [connect() for _ in range(2)]
    locks = [
        FencedSemaphore(clients[number % 2], "s", permits=permits, namespace=zkfence_namespace)
        for number in range(permits)
    ]
    barrier = threading.Barrier(permits)
    missed: list[int] = []

    def work(lock: FencedSemaphore) -> None:
        for turn in range(8):
            barrier.wait()
            grant = lock.try_acquire()
            if grant is None:
                missed.append(turn)
            barrier.wait()
            if grant is not None:
                grant.release()

    threads = [threading.Thread(target=work, args=(lock,)) for lock in locks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not missed


def test_trying_looks_again_where_another_one_was_in_the_slot_only_to_look(
    semaphore: Make, other_zk: KazooClient, zkfence_namespace: str, faults: Faults
) -> None:
    lock = semaphore(1)
    lock.acquire(timeout=10).release()
    counter = f"{zkfence_namespace}/locks/s%230/2"
    passing: list[str] = []

    def before(effect: Effect) -> None:
        create = contender_in(effect)
        if create and "%23" in create.path and not passing:
            passing.append(other_zk.create(f"{counter}/x-", b"{}", ephemeral=True, sequence=True))
        elif passing and isinstance(effect, Jitter):
            faults.before = lambda effect: None
            other_zk.delete(passing[0])

    faults.before = before
    grant = lock.try_acquire()
    assert passing
    assert grant is not None
    grant.release()


# --- one thread -------------------------------------------------------------------------------------------------


def test_a_thread_may_hold_several_permits_but_not_wait_for_itself(semaphore: Make, in_background: Start) -> None:
    lock = semaphore(2)
    first = lock.acquire(timeout=10)
    second = semaphore(2).acquire(timeout=10)
    assert first.slot != second.slot
    with pytest.raises(WouldDeadlock):
        lock.acquire(timeout=10)
    assert lock.try_acquire() is None
    waiting = in_background(lambda: lock.acquire(timeout=20))
    first.release()
    waiting.result().release()
    lock.acquire(timeout=10).release()
    second.release()


def test_a_thread_that_holds_some_of_the_permits_may_wait_for_those_of_others(
    semaphore: Make, line: Line, in_background: Start
) -> None:
    lock = semaphore(2)
    theirs = line.stand(semaphore(2, 1))
    mine = lock.acquire(timeout=10)
    with pytest.raises(LockTimeout):
        lock.acquire(timeout=0.2)
    theirs.release()
    lock.acquire(timeout=10).release()
    mine.release()


# --- who is woken, and what is asked ----------------------------------------------------------------------------


def test_a_waiter_that_is_woken_watches_only_those_that_it_does_not_watch_yet(
    semaphore: Make, line: Line, faults: Faults
) -> None:
    permits = 6
    holders = [line.stand(semaphore(permits, 1)) for _ in range(permits)]
    waiting = [line.stand(semaphore(permits)) for _ in range(3)]
    effects = len(faults.effects)
    holders[-1].release()  # all three watch it
    waiting[0].grant.check()
    line.settle()
    reads = [
        operation
        for effect in faults.effects[effects:]
        if isinstance(effect, Flight)
        for operation in effect.operations
        if isinstance(operation, Get) and operation.watch and "/s/" in operation.path
    ]
    assert len(reads) <= 3, "not all six again, three times"
    assert waiting[0].wakes == 1
    for party in (*holders[:-1], *waiting):
        party.release()


def test_the_third_acquisition_takes_three_flights(semaphore: Make, faults: Faults) -> None:
    lock = semaphore(3)
    for _ in range(2):
        lock.acquire(timeout=10).release()
    faults.effects.clear()
    with lock.acquire(timeout=10):
        flights = [effect for effect in faults.effects if isinstance(effect, Flight)]
        assert len(flights) == 3
        assert isinstance(flights[0].operations[0], Create)
        assert isinstance(flights[1].operations[1], Children)
        assert isinstance(flights[2].operations[0], Create)


def test_slots_that_are_taken_are_not_tried(semaphore: Make, line: Line, faults: Faults) -> None:
    lock = semaphore(4)
    for party in [line.stand(lock) for _ in range(4)]:
        party.release()
    taken = [line.stand(semaphore(4, 1)) for _ in range(3)]
    for _ in range(6):
        lock._last_slot = None
        effects = len(faults.effects)
        lock.acquire(timeout=10).release()
        assert sum(isinstance(effect, Flight) for effect in faults.effects[effects:]) <= 4
    for party in taken:
        party.release()


# --- across a roll ----------------------------------------------------------------------------------------------


def test_permits_and_slots_come_through_rolls(
    connect: Connect, zkfence_namespace: str, monkeypatch: pytest.MonkeyPatch, left: Left
) -> None:
    monkeypatch.setattr(LockBase, "_ceiling", 5)
    holding: set[int] = set()
    tokens: dict[int, list[int]] = defaultdict(list)
    failures: list[BaseException] = []

    def work(lock: FencedSemaphore) -> None:
        try:
            for _ in range(6):
                with lock.acquire(timeout=60) as grant:
                    assert grant.slot is not None
                    assert grant.slot not in holding
                    holding.add(grant.slot)
                    assert len(holding) <= 2
                    tokens[grant.slot].append(grant.token)
                    holding.discard(grant.slot)
        except BaseException as error:
            failures.append(error)

    clients = [connect() for _ in range(2)]
    shared = [FencedSemaphore(client, "s", permits=2, namespace=zkfence_namespace) for client in clients]
    threads = [threading.Thread(target=work, args=(shared[number % 2],)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sum(map(len, tokens.values())) == 36
    for each in tokens.values():
        assert each == sorted(set(each))
    assert len(left.nodes.epochs("s")) > 6
    assert left.all() == []


def test_holders_in_an_older_epoch_count(
    semaphore: Make, line: Line, left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LockBase, "_ceiling", 1)
    older = line.stand(semaphore(2))
    newer = line.stand(semaphore(2))
    third = line.stand(semaphore(2, 1))
    assert len(left.nodes.epochs("s")) == 3, "each of them stands in an epoch of its own"
    assert newer.granted
    assert not third.granted
    newer.release()
    third.grant.check()
    older.release()
    third.release()


def test_a_semaphore_that_was_deleted_comes_back(semaphore: Make, zk: KazooClient, zkfence_namespace: str) -> None:
    lock = semaphore(1)
    with lock.acquire(timeout=10) as before:
        pass
    for name in ("s", "s%230"):
        zk.delete(f"{zkfence_namespace}/locks/{name}", recursive=True)
        with pytest.raises(NoNodeError):
            zk.get_children(f"{zkfence_namespace}/locks/{name}")
    with lock.acquire(timeout=10) as after:
        assert after.token > before.token
