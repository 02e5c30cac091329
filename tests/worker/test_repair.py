"""Repair: tokens go on above what ZooKeeper has forgotten, while workers work, and whatever interrupts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

import zkfence
from zkfence import (
    EpochExhausted,
    FencedLock,
    FencedReadLock,
    FencedSemaphore,
    NamespaceDamaged,
    RepairRefused,
    Token,
    _repair,
)  # fmt: skip
from zkfence._core._operations import Effect, Landed
from zkfence._repair import Remaining, Repair, plan, repair
from zkfence._threads import Driver

from .conftest import Background, Nodes

Start = Callable[[Callable[[], Any]], Background]
Eventually = Callable[..., None]
HIGH = Token.of(7, 41)


def once(lock: FencedLock | FencedReadLock) -> zkfence.Token:
    with lock.acquire(timeout=10) as grant:
        return grant.token


def id_of(lock: FencedLock) -> str:
    with lock.acquire(timeout=10) as grant:
        return grant.stamp("r").lock.partition("/")[0]


def everything(zk: KazooClient, path: str) -> dict[str, tuple[bytes, int]]:
    data, stat = zk.get(path)
    found = {path: (data, stat.mzxid)}
    for name in zk.get_children(path):
        found |= everything(zk, f"{path}/{name}")
    return found


def names(report: Repair) -> list[str]:
    return [each.lock_name for each in report.remaining]


# --- raising ----------------------------------------------------------------------------------------------------


def test_every_lock_goes_on_above(lock: FencedLock, other: FencedLock, zk: KazooClient, zkfence_namespace: str) -> None:
    others = [FencedLock(zk, name, namespace=zkfence_namespace) for name in ("b/c", "é", "new")]
    for each in (lock, other, *others[:2]):
        once(each)
    done = repair(zk, HIGH, namespace=zkfence_namespace)
    assert (done.locks, done.retired, done.remaining) == (3, 3, ())
    assert (done.former_epoch, done.epoch) == (3, 7)
    for each in (lock, other, *others):
        assert once(each) > HIGH
        assert once(each).epoch > 7


def test_what_was_raised_is_not_raised_again(lock: FencedLock, zk: KazooClient, zkfence_namespace: str) -> None:
    once(lock)
    repair(zk, HIGH, namespace=zkfence_namespace)
    token = once(lock)
    for lower in (HIGH, Token.of(7, 0), Token.of(1, 0)):
        done = repair(zk, lower, namespace=zkfence_namespace)
        assert (done.former_epoch, done.epoch, done.retired) == (8, 8, 0)
    assert once(lock) == token + 1


def test_locks_above_the_token_are_raised_too_where_zookeeper_has_forgotten(
    lock: FencedLock, other: FencedLock, zk: KazooClient, zkfence_namespace: str
) -> None:
    """It was restored as a whole: the lock that was noticed is not the only one that has lost count."""
    FencedLock(zk, "b", namespace=zkfence_namespace)
    tokens = [once(FencedLock(zk, name, namespace=zkfence_namespace)) for name in "bcd"]
    done = repair(zk, tokens[0], namespace=zkfence_namespace)
    assert (done.epoch, done.retired) == (3, 3)
    assert all(once(FencedLock(zk, name, namespace=zkfence_namespace)).epoch > 3 for name in "bcd")


def test_a_plan_changes_nothing_and_tells_everything(
    lock: FencedLock, other: FencedLock, zk: KazooClient, zkfence_namespace: str
) -> None:
    once(FencedLock(zk, "b", namespace=zkfence_namespace))
    with lock as grant:
        before = everything(zk, zkfence_namespace)
        planned = plan(zk, HIGH, namespace=zkfence_namespace)
        assert everything(zk, zkfence_namespace) == before
        assert (planned.former_epoch, planned.epoch, planned.locks, planned.retired) == (2, 7, 2, 1)
        (held,) = planned.remaining
        assert (held.lock_name, held.path) == ("a", grant.path)
        assert "pid" in held.why


def test_a_holder_keeps_its_lock_and_its_lock_is_left_for_the_next_run(
    lock: FencedLock, other: FencedLock, zk: KazooClient, nodes: Nodes, zkfence_namespace: str
) -> None:
    with lock as grant:
        done = repair(zk, HIGH, namespace=zkfence_namespace, wait=0.3)
        assert names(done) == ["a"]
        grant.check()
        assert nodes.contenders("a") == [grant.path], "the repair has left the line"
        assert other.try_acquire() is None
    assert once(other).epoch == grant.token.epoch, "nobody has raised it yet"
    assert repair(zk, HIGH, namespace=zkfence_namespace).retired == 1
    assert once(other) > HIGH
    assert once(lock) > HIGH


def test_a_held_lock_is_waited_for_in_line_and_those_behind_queue_anew(
    lock: FencedLock, other: FencedLock, connect: Callable[..., zkfence.Client], zkfence_namespace: str, nodes: Nodes,
    in_background: Start, eventually: Eventually,
) -> None:  # fmt: skip
    admin = connect()
    before = FencedLock(connect(), "a", namespace=zkfence_namespace)
    once(other)
    with lock as grant:
        ahead = in_background(lambda: once(before))
        eventually(lambda: len(nodes.contenders("a")) == 2, "one waits")
        repairing = in_background(lambda: repair(admin, HIGH, namespace=zkfence_namespace))
        eventually(lambda: len(nodes.contenders("a")) == 3, "the repair stands in line")
        behind = [in_background(lambda: once(other)) for _ in range(3)]
        eventually(lambda: len(nodes.contenders("a")) == 6, "others stand behind it")
        grant.check()
    assert ahead.result().epoch == grant.token.epoch, "who stood in line before is served first"
    assert (repairing.result().retired, repairing.result().remaining) == (1, ())
    assert all(each.result() > HIGH for each in behind)
    assert nodes.contenders("a") == []


def test_contenders_at_work_never_notice(
    connect: Callable[..., zkfence.Client], zkfence_namespace: str, nodes: Nodes, eventually: Eventually
) -> None:
    """Nobody holds twice, tokens rise, and everybody who remembers the old counter path leaves it."""
    tokens: list[zkfence.Token] = []
    inside: list[int] = []
    most: list[int] = []
    enough = threading.Event()

    def contend(client: zkfence.Client) -> None:
        lock = FencedLock(client, "a", namespace=zkfence_namespace)
        while not enough.is_set():
            with lock.acquire(timeout=60) as grant:
                inside.append(1)
                most.append(len(inside))
                tokens.append(grant.token)
                inside.pop()

    clients = [connect(), connect()]
    threads = [threading.Thread(target=contend, args=(client,)) for client in clients for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        admin = connect()
        eventually(lambda: len(tokens) > 20, "they are at work")
        for epoch in (10, 20, 30):
            assert repair(admin, Token.of(epoch, 5), namespace=zkfence_namespace).remaining == ()
            seen = len(tokens)
            eventually(lambda: len(tokens) > seen + 20, "they are at work again")  # noqa: B023
            assert tokens[-1].epoch > epoch
    finally:
        enough.set()
        for thread in threads:
            thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert max(most) == 1
    assert tokens == sorted(set(tokens))
    assert {token.epoch for token in tokens} == {1, 11, 21, 31}
    assert nodes.contenders("a") == []


@pytest.mark.parametrize("after_sending", [False, True])
def test_a_repair_that_dies_anywhere_can_be_run_again(
    lock: FencedLock, zk: KazooClient, other_zk: zkfence.Client, zkfence_namespace: str, nodes: Nodes,
    eventually: Eventually, monkeypatch: pytest.MonkeyPatch, after_sending: bool,
) -> None:  # fmt: skip
    """One idle lock, one with a holder and one who waits for it."""
    idle = FencedLock(zk, "b", namespace=zkfence_namespace)
    effects = 0
    dies_at = 0

    class MortalDriver(Driver):
        def _do(self, effect: Effect) -> Landed | set[str] | None:
            nonlocal effects
            effects += 1
            if effects == dies_at and not after_sending:
                raise KeyboardInterrupt
            landed = super()._do(effect)
            if effects == dies_at:
                raise KeyboardInterrupt
            return landed

    token = Token.of(1, 0)
    survived = False
    while not survived:
        effects, dies_at = 0, dies_at + 1
        assert dies_at < 100
        once(idle)
        with lock.acquire(timeout=10) as grant:
            token = Token.of(grant.token.epoch + 3, 0)
            holding = Background(lambda: repair(other_zk, token, namespace=zkfence_namespace))  # noqa: B023
            with monkeypatch.context() as patch:
                patch.setattr(_repair, "Driver", MortalDriver)
                eventually(lambda: len(nodes.contenders("a")) == 2 or holding.done, "it waits in line, or died")  # noqa: B023
                grant.check()
        try:
            holding.result()
            survived = True
        except KeyboardInterrupt:
            pass
        eventually(lambda: nodes.contenders("a") == [], "nothing of it stays in line")
        assert once(lock) > grant.token
        assert repair(zk, token, namespace=zkfence_namespace).remaining == ()
        assert once(lock) > token
        assert once(idle) > token
    assert dies_at > 8, "it was interrupted at every step"


def test_the_end_of_the_sequence_is_no_obstacle(
    lock: FencedLock, other: FencedLock, zk: KazooClient, zkfence_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FencedLock, "_ceiling", 2)
    for _ in range(3):
        once(lock)
    assert repair(zk, HIGH, namespace=zkfence_namespace).retired == 1
    assert once(lock) > HIGH
    assert once(other) > HIGH


def test_trouble_with_one_lock_is_told_and_the_others_are_raised(
    lock: FencedLock, zk: KazooClient, zkfence_namespace: str
) -> None:
    for name in "abc":
        once(FencedLock(zk, name, namespace=zkfence_namespace))
    zk.create(f"{zkfence_namespace}/locks/a/1/note")
    zk.set(f"{zkfence_namespace}/locks/b", b"junk")
    zk.create(f"{zkfence_namespace}/locks/c/readme")
    once(FencedLock(zk, "d", namespace=zkfence_namespace))
    done = repair(zk, HIGH, namespace=zkfence_namespace, wait=1.0)
    assert (done.retired, names(done)) == (1, ["a", "b", "c"])
    a, b, c = done.remaining
    assert a.path.endswith("/a/1/note")
    assert "delete it" in a.why
    assert "cannot be read" in b.why
    assert c.path.endswith("/c/readme")


def test_a_strangers_node_among_the_locks_is_told_and_no_lock_is_made_in_its_stead(
    lock: FencedLock, zk: KazooClient, zkfence_namespace: str
) -> None:
    once(lock)
    strange = f"{zkfence_namespace}/locks/a%zz"  # no lock has such a name
    zk.create(strange)
    done = repair(zk, HIGH, namespace=zkfence_namespace, wait=1.0)
    assert [each.path for each in done.remaining] == [strange]
    assert zk.get_children(f"{zkfence_namespace}/locks") == ["a%zz"]


def test_permits_are_kept_and_their_slots_raised_when_they_are_free(
    zk: KazooClient, other_zk: zkfence.Client, zkfence_namespace: str
) -> None:
    """A semaphore's own queue is no matter: its grants carry the tokens of its slots' locks."""
    semaphore = FencedSemaphore(zk, "s", permits=2, namespace=zkfence_namespace)
    for _ in range(2):
        with semaphore.acquire(timeout=10), semaphore.acquire(timeout=10):
            pass  # both slots are known
    with semaphore.acquire(timeout=10) as permit:
        done = repair(other_zk, HIGH, namespace=zkfence_namespace, wait=0.3)
        assert (names(done), done.retired) == ([permit.lock_name], 1)
        permit.check()
        with semaphore.acquire(timeout=10) as second:
            assert second.token > HIGH
    assert repair(other_zk, HIGH, namespace=zkfence_namespace).remaining == ()
    with semaphore.acquire(timeout=10) as first, semaphore.acquire(timeout=10) as second:
        assert min(first.token, second.token) > HIGH


def test_readers_are_waited_for_and_those_behind_queue_anew(
    connect: Callable[..., zkfence.Client], zkfence_namespace: str, nodes: Nodes, in_background: Start,
    eventually: Eventually,
) -> None:  # fmt: skip
    admin = connect()
    first, second, late = (FencedReadLock(connect(), "a", namespace=zkfence_namespace) for _ in range(3))
    with first, second.acquire(timeout=10) as reader:
        repairing = in_background(lambda: repair(admin, HIGH, namespace=zkfence_namespace))
        eventually(lambda: len(nodes.contenders("a")) == 3, "the repair stands in line")
        behind = in_background(lambda: once(late))
        eventually(lambda: len(nodes.contenders("a")) == 4, "a reader waits behind it")
        reader.check()
    assert repairing.result().remaining == ()
    assert behind.result() > HIGH


def test_what_a_repair_makes_is_as_private_as_the_namespace(
    zk: KazooClient, zkfence_namespace: str, in_background: Start, eventually: Eventually
) -> None:
    zk.add_auth("digest", "worker:secret")
    private = [make_digest_acl("worker", "secret", all=True)]
    guarded = FencedLock(zk, "a", namespace=zkfence_namespace, acl=private)
    with guarded as grant:
        repairing = in_background(lambda: repair(zk, HIGH, namespace=zkfence_namespace))
        counter = grant.path.rpartition("/")[0]
        eventually(lambda: len(zk.get_children(counter)) == 2, "it waits in line")
        for name in zk.get_children(counter):
            assert zk.get_acls(f"{counter}/{name}")[0] == private
    assert repairing.result().retired == 1
    assert once(guarded) > HIGH


def test_a_lock_that_stays_held_does_not_use_up_the_time_of_the_others(
    zk: KazooClient, other_zk: zkfence.Client, zkfence_namespace: str
) -> None:
    stays, goes = (FencedLock(zk, name, namespace=zkfence_namespace) for name in "ab")
    asked: list[str] = []
    with stays, goes.acquire() as grant:

        def on_waiting(busy: Remaining) -> None:
            asked.append(busy.lock_name)
            if busy.lock_name == "b":
                grant.release()

        done = repair(other_zk, HIGH, namespace=zkfence_namespace, wait=1.0, on_waiting=on_waiting)
    assert asked == ["a", "b"]
    assert (done.retired, names(done)) == (1, ["a"])


def test_a_raise_needs_a_namespace(zk: KazooClient, zkfence_namespace: str) -> None:
    for what in (plan, repair):
        with pytest.raises(RepairRefused, match="there is no namespace"):
            what(zk, HIGH, namespace=zkfence_namespace)
    assert not zk.exists(zkfence_namespace)


@pytest.mark.parametrize("missing", ["epoch", "locks"])
def test_a_damaged_namespace_is_not_touched(
    lock: FencedLock, zk: KazooClient, zkfence_namespace: str, missing: str
) -> None:
    once(lock)
    zk.delete(f"{zkfence_namespace}/{missing}", recursive=True)
    before = everything(zk, zkfence_namespace)
    for namespace_id in (None, "cafe"):
        with pytest.raises(NamespaceDamaged):
            repair(zk, HIGH, namespace=zkfence_namespace, namespace_id=namespace_id)
    assert everything(zk, zkfence_namespace) == before


def test_above_the_last_epoch_there_is_nothing(lock: FencedLock, zk: KazooClient, zkfence_namespace: str) -> None:
    once(lock)
    before = everything(zk, zkfence_namespace)
    for what in (plan, repair):
        with pytest.raises(EpochExhausted):
            what(zk, Token.of(2**32 - 1, 0), namespace=zkfence_namespace)
    assert everything(zk, zkfence_namespace) == before


def test_using_up_half_of_all_epochs_takes_force(lock: FencedLock, zk: KazooClient, zkfence_namespace: str) -> None:
    once(lock)
    before = everything(zk, zkfence_namespace)
    huge = Token.of(2**32 - 2, 9)
    assert "no way back" in plan(zk, huge, namespace=zkfence_namespace).objections[0]
    with pytest.raises(RepairRefused, match="no way back"):
        repair(zk, huge, namespace=zkfence_namespace)
    assert everything(zk, zkfence_namespace) == before
    repair(zk, huge, namespace=zkfence_namespace, force=True)
    assert once(lock).dotted == f"{2**32 - 1}.0"


# --- adopting ---------------------------------------------------------------------------------------------------


def test_a_namespace_that_is_not_there_is_made_with_the_id(
    lock: FencedLock, zk: KazooClient, zkfence_namespace: str
) -> None:
    planned = plan(zk, HIGH, namespace=zkfence_namespace, namespace_id="cafe")
    assert (planned.former_id, planned.former_epoch) == (None, None)
    assert not zk.exists(zkfence_namespace)
    done = repair(zk, HIGH, namespace=zkfence_namespace, namespace_id="cafe")
    assert (done.former_id, done.namespace_id, done.epoch) == (None, "cafe", 7)
    assert id_of(lock) == "cafe"
    assert once(lock) > HIGH


def test_workers_that_remember_the_former_id_stamp_the_new_one(
    lock: FencedLock, other: FencedLock, zk: KazooClient, zkfence_namespace: str
) -> None:
    """Also where the token asks for nothing: every lock that was opened under the former id is opened anew."""
    for _ in range(2):
        former = id_of(lock)
        assert id_of(other) == former
    done = repair(zk, Token.of(1, 0), namespace=zkfence_namespace, namespace_id="cafe")
    assert (done.former_id, done.namespace_id, done.retired) == (former, "cafe", 1)
    assert id_of(lock) == "cafe"
    assert id_of(other) == "cafe"
    assert id_of(lock) == "cafe"


def test_workers_notice_a_new_id_also_where_the_token_was_passed_long_ago(
    lock: FencedLock, other: FencedLock, zk: KazooClient, zkfence_namespace: str
) -> None:
    once(lock)
    repair(zk, HIGH, namespace=zkfence_namespace)
    assert id_of(lock) == id_of(other)
    done = repair(zk, HIGH, namespace=zkfence_namespace, namespace_id="cafe")
    assert done.retired == 1
    assert id_of(lock) == id_of(other) == "cafe"


def test_a_holder_under_the_former_id_is_left_for_the_next_run(
    lock: FencedLock, other: FencedLock, zk: KazooClient, zkfence_namespace: str
) -> None:
    once(other)
    with lock as grant:
        former = grant.stamp("r").lock
        done = repair(zk, Token.of(1, 0), namespace=zkfence_namespace, namespace_id="cafe", wait=0.2)
        assert names(done) == ["a"]
        assert grant.stamp("r").lock == former
    fresh = FencedLock(zk, "b", namespace=zkfence_namespace)
    token = once(fresh)
    done = repair(zk, Token.of(1, 0), namespace=zkfence_namespace, namespace_id="cafe", wait=0.2)
    assert (done.former_id, done.retired, done.remaining) == ("cafe", 1, ())
    assert id_of(other) == id_of(lock) == "cafe"
    assert once(fresh) == token + 1, "what was opened since needs no repair"


def test_adopting_the_present_id_is_only_a_raise(lock: FencedLock, zk: KazooClient, zkfence_namespace: str) -> None:
    present = id_of(lock)
    done = repair(zk, HIGH, namespace=zkfence_namespace, namespace_id=present)
    assert (done.former_id, done.namespace_id, done.epoch, done.objections) == (present, present, 7, ())
    assert id_of(lock) == present
    assert once(lock) > HIGH


def test_an_id_that_was_given_up_is_not_taken_back_by_accident(
    lock: FencedLock, zk: KazooClient, zkfence_namespace: str
) -> None:
    """After an adoption, a resource of the time between is refused, and its refusal names the id of that time."""
    between = id_of(lock)
    repair(zk, HIGH, namespace=zkfence_namespace, namespace_id="cafe")
    before = everything(zk, zkfence_namespace)
    with pytest.raises(RepairRefused, match="before"):
        repair(zk, HIGH, namespace=zkfence_namespace, namespace_id=between)
    assert everything(zk, zkfence_namespace) == before
    repair(zk, HIGH, namespace=zkfence_namespace, namespace_id=between, force=True)
    assert id_of(lock) == between


@pytest.mark.parametrize("wrong", ["", "cafe/reports", "ca fe", "cafe\n"])
def test_what_is_no_id_is_told(zk: KazooClient, zkfence_namespace: str, wrong: str) -> None:
    with pytest.raises(RepairRefused, match="namespace id"):
        repair(zk, HIGH, namespace=zkfence_namespace, namespace_id=wrong)
    assert not zk.exists(zkfence_namespace)


def test_a_repair_leaves_a_line_for_the_audit(
    lock: FencedLock, zk: KazooClient, zkfence_namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    once(lock)
    repair(zk, HIGH, namespace=zkfence_namespace, namespace_id="cafe")
    (line,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("audit:")]
    for part in (zkfence_namespace, "cafe", HIGH.dotted, "last epoch 7 (was 1)", "1 locks retired, 0 remaining"):
        assert part in line
