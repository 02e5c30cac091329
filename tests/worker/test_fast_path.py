"""What an acquisition asks of ZooKeeper: one flight where nobody is there, little where many are, and never a guess
that grants."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError, NotEmptyError
from kazoo.protocol.connection import _CONNECTION_DROP

import zkfence
from zkfence import FencedLock, FencedReadLock, FencedSemaphore, LockTimeout, MixedKinds, _threads
from zkfence._core._layout import load_watermark
from zkfence._core._operations import Children, Delete, Effect, Exists, Flight, Get, Multi, Operation, Ready, SetData

from .conftest import Background, Faults, Line, Nodes, contender_in

Start = Callable[[Callable[[], Any]], Background]
Eventually = Callable[..., None]
Connect = Callable[..., zkfence.Client]


def asked(effects: list[Effect]) -> list[Operation]:
    return [operation for effect in effects if isinstance(effect, Flight) for operation in effect.operations]


def drop_connection(client: KazooClient) -> None:
    """Cut the client's connection; it comes back with the same session."""
    client._call(_CONNECTION_DROP, client.handler.async_result())


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Operation]:
    """What the releases send."""
    sent: list[Operation] = []
    do = _threads.Driver._do

    def record(driver: _threads.Driver, effect: Effect) -> Any:
        if isinstance(effect, Flight) and type(driver) is _threads.Driver:
            sent.extend(effect.operations)
        return do(driver, effect)

    monkeypatch.setattr(_threads.Driver, "_do", record)
    return sent


# --- nobody is there --------------------------------------------------------------------------------------------


def test_a_lock_that_is_known_and_free_takes_one_flight_and_one_request_to_release(
    lock: FencedLock, faults: Faults, sent: list[Operation]
) -> None:
    lock.acquire().release()
    for _ in range(3):
        faults.effects.clear()
        sent.clear()
        with lock as grant:
            ready, flight = faults.effects
            assert isinstance(ready, Ready)
            assert isinstance(flight, Flight)
            assert [type(each).__name__ for each in flight.operations] == ["Create", "Get", "Get"]
            assert flight.operations[2] == Get(grant.path, watch=True)
        assert sent == [Delete(grant.path)]


def test_a_reader_that_is_alone_takes_one_flight(zk: zkfence.Client, zkfence_namespace: str, faults: Faults) -> None:
    lock = FencedReadLock(zk, "a", namespace=zkfence_namespace)
    lock.acquire().release()
    faults.effects.clear()
    lock.acquire().release()
    assert len(faults.effects) == 2


def test_a_guess_that_misses_costs_one_flight_and_one_that_hits_another_node_does_no_harm(
    lock: FencedLock, other: FencedLock, zk: zkfence.Client, faults: Faults
) -> None:
    lock.acquire().release()
    other.acquire().release()  # the number that the first one would have had
    faults.effects.clear()
    with lock as grant:
        assert len(asked(faults.effects)) == 5
        assert sum(isinstance(effect, Flight) for effect in faults.effects) == 2
        assert set(zk._data_watchers) == {grant.path}
    with other.acquire(timeout=5):
        assert lock.try_acquire() is None  # its guess is the holder's node, or one after it
    lock.acquire(timeout=5).release()


def test_what_another_session_has_learned_is_not_believed(
    lock: FencedLock,
    zk: zkfence.Client,
    faults: Faults,
    end_session: Callable[[KazooClient], None],
    eventually: Eventually,
) -> None:
    """A wiped ensemble may count its transactions from the beginning again."""
    with lock as grant:
        end_session(zk)
        assert grant.lost.wait(10)
    eventually(lambda: lock._session.session_id is not None, "there is a new session", within=10.0)
    faults.effects.clear()
    lock.acquire(timeout=10).release()
    assert not contender_in(faults.effects[0])
    assert isinstance(faults.effects[0], Flight), "it asks for the epoch"


def test_a_thread_whose_guess_is_right_waits_for_another_one_of_the_same_lock(lock: FencedLock, line: Line) -> None:
    lock.acquire().release()
    parties = [line.stand(lock) for _ in range(3)]
    for number, party in enumerate(parties):
        assert not any(each.granted for each in parties[number + 1 :])
        party.release()


def test_a_guess_that_hits_the_holders_node_is_no_grant(lock: FencedLock, other: FencedLock, nodes: Nodes) -> None:
    lock.acquire().release()
    with other.acquire() as grant:
        assert lock._memory is not None
        assert lock._memory.next_number == grant.token.sequence
        assert lock.try_acquire() is None
        grant.check()
        assert nodes.contenders("a") == [grant.path]


CROWD = 24

# --- one that is not alone, or not there any more ---------------------------------------------------------------


def after_the_create(faults: Faults, act: Callable[[], None], *, flight: int = 1) -> None:
    """Have something happen once, before the so-many-th flight behind the contender's creation."""
    seen: list[Effect] = []

    def before(effect: Effect) -> None:
        if contender_in(effect) or (seen and isinstance(effect, Flight)):
            seen.append(effect)
        if len(seen) == flight + 1:
            faults.before = lambda effect: None
            act()

    faults.before = before


@pytest.mark.parametrize("successor", [False, True])
def test_an_only_child_that_is_somebody_else_is_no_grant(
    lock: FencedLock, other: FencedLock, other_zk: KazooClient, nodes: Nodes, faults: Faults, successor: bool
) -> None:
    """The own node is deleted between its creation and the look, and the one child that is left is the next one."""
    lock.acquire().release()
    assert lock._memory is not None
    lock._memory.next_number = None  # so that it looks for its own node in a second flight
    grants: list[zkfence.Grant] = []

    def act() -> None:
        (own,) = nodes.contenders("a")
        other_zk.delete(own)
        if successor:
            grants.append(other.acquire(timeout=5))

    after_the_create(faults, act)
    if successor:
        with pytest.raises(LockTimeout):
            lock.acquire(timeout=0.5)
        grants[0].check()
        grants[0].release()
    else:
        with lock.acquire(timeout=5) as grant:
            assert nodes.contenders("a") == [grant.path]


def test_a_node_that_is_deleted_while_a_look_is_under_way_is_not_granted(
    lock: FencedLock, other_zk: KazooClient, nodes: Nodes, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the guess right: the look shows one child, and the own node is gone behind it."""
    lock.acquire().release()
    kazoo = lock._session.kazoo
    send = kazoo.send
    cut: list[bool] = []

    def split(operations: Any, acl: Any, done: Callable[..., object]) -> Any:
        if not cut and len(operations) == 3:
            cut.append(True)
            heard = threading.Event()
            head = send(operations[:2], acl, lambda answers: heard.set())
            assert heard.wait(5)
            other_zk.delete(nodes.contenders("a")[0])
            answers = send(operations[2:], acl, lambda answers: None)
            answers._done = done
            answers.replies[:0] = head.replies
            answers.check()
            return answers
        return send(operations, acl, done)

    monkeypatch.setattr(kazoo, "send", split)
    with lock.acquire(timeout=5) as grant:
        assert cut
        grant.check()
        assert nodes.contenders("a") == [grant.path]


@pytest.mark.parametrize(("what", "number"), [("node", 2), ("node", CROWD), ("namespace", 2)])
def test_a_waiter_that_loses_its_node_between_wake_and_look_queues_anew(
    faults: Faults, line: Line, zk: zkfence.Client, other: FencedLock, other_zk: KazooClient, zkfence_namespace: str,
    nodes: Nodes, what: str, number: int,
) -> None:  # fmt: skip
    """Also where the namespace was deleted and made anew, and somebody else has a node of the same name."""
    lock = FencedLock(zk, "a", namespace=zkfence_namespace)
    lock.acquire().release()
    parties = [line.stand(lock) for _ in range(number)]
    rivals: list[zkfence.Grant] = []

    def before(effect: Effect) -> None:
        if isinstance(effect, Flight):
            faults.before = lambda effect: None
            second = nodes.contenders("a")[0]
            if what == "node":
                other_zk.delete(second)
                return
            other_zk.delete(zkfence_namespace, recursive=True)
            while not rivals or rivals[-1].path != second:
                if rivals:
                    rivals[-1].release()
                rivals.append(other.acquire(timeout=10))

    first = parties.pop(0)
    if number == CROWD:  # the second one writes a watermark
        first.release()
        first = parties.pop(0)
        first.grant.check()
    faults.before = before
    first.release()
    if what == "namespace":
        line.settle()
        assert not any(party.granted for party in parties)
        rivals[-1].check()
        rivals[-1].release()
    tokens = serve_all(line)
    assert len(tokens) == len(parties)
    assert nodes.contenders("a") == []


def test_a_predecessor_that_changes_is_still_watched(
    line: Line, lock: FencedLock, other: FencedLock, zk: zkfence.Client
) -> None:
    """A watch fires once, and a change is no deletion."""
    holder, waiting = line.stand(lock), line.stand(other)
    for wakes in (1, 2, 3):
        zk.set(holder.grant.path, b"%d" % wakes)
        line.settle()
        assert not waiting.granted
        assert waiting.wakes == wakes
    holder.release()
    waiting.release()


def test_a_connection_that_is_lost_between_the_flights_leaves_the_node_watched(
    lock: FencedLock, zk: zkfence.Client, other_zk: KazooClient, nodes: Nodes, faults: Faults, eventually: Eventually
) -> None:
    lock.acquire().release()
    assert lock._memory is not None
    lock._memory.next_number = None

    def act() -> None:
        connection = lock._session.connection
        drop_connection(zk)
        eventually(lambda: lock._session.connection != connection and zk.connected, "it is connected again")

    after_the_create(faults, act)
    with lock.acquire(timeout=10) as grant:
        assert nodes.contenders("a") == [grant.path]
        eventually(lambda: set(zk._data_watchers) == {grant.path}, "its node is watched")
        other_zk.delete(grant.path)
        assert grant.lost.wait(2)


@pytest.mark.parametrize("rival", [False, True], ids=["alone", "a rival comes"])
@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
@pytest.mark.parametrize("what", ["/locks/a/{epoch}", "/locks/a", ""], ids=["counter path", "lock", "namespace"])
def test_what_is_deleted_and_made_anew_at_any_step_makes_no_two_holders(
    zk: zkfence.Client, other: FencedLock, other_zk: KazooClient, zkfence_namespace: str, nodes: Nodes, faults: Faults,
    what: str, known: bool, rival: bool, eventually: Eventually,
) -> None:  # fmt: skip
    last = 0
    for point in itertools.count():
        faults.before = lambda effect: None
        lock = FencedLock(zk, "a", namespace=zkfence_namespace)
        if known:
            lock.acquire(timeout=10).release()
        if not other_zk.exists(f"{zkfence_namespace}/locks/a"):
            other.acquire(timeout=10).release()
        start = len(faults.effects)
        rivals: list[zkfence.Grant] = []

        def before(
            effect: Effect, start: int = start, point: int = point, rivals: list[zkfence.Grant] = rivals
        ) -> None:
            if len(faults.effects) == start + point + 1:
                faults.before = lambda effect: None
                path = what.format(epoch=nodes.epochs("a")[-1])
                other_zk.delete(f"{zkfence_namespace}{path}", recursive=True)
                if rival:
                    rivals.append(other.acquire(timeout=10))

        faults.before = before
        grant = lock.try_acquire() if rival else lock.acquire(timeout=10)
        if faults.before is before:
            assert grant is not None
            grant.release()
            break
        if rivals:
            assert grant is None or grant.lost.wait(2), "only one of them may live"
            rivals[0].check()
            eventually(lambda rivals=rivals: nodes.contenders("a") == [rivals[0].path], "only the rival is there")
            rivals[0].release()
        else:
            assert grant is not None
            if nodes.contenders("a") != [grant.path]:  # it was deleted behind the last look
                assert grant.lost.wait(2)
            elif what:
                grant.check()
                assert grant.token > last
                last = grant.token
        if grant is not None:
            grant.release()
        eventually(lambda: nodes.contenders("a") == [], "nothing stays behind")
    assert point >= (2 if known else 5)


# --- many are there ---------------------------------------------------------------------------------------------


@pytest.fixture
def crowd(lock: FencedLock, zk: zkfence.Client, other_zk: zkfence.Client, zkfence_namespace: str, line: Line) -> Line:
    """A holder and many that wait, in two sessions, all of whom know the lock."""
    locks = [FencedLock(client, "a", namespace=zkfence_namespace) for client in (zk, other_zk)]
    for each in locks:
        each.acquire().release()
    for number in range(CROWD):
        line.stand(locks[number % 2])
    return line


def test_a_handoff_in_a_crowd_lists_nothing_and_is_small(
    faults: Faults, crowd: Line, sent: list[Operation], nodes: Nodes
) -> None:
    """The watermark says that those before are gone."""
    parties = crowd.parties
    for number in (0, 1):  # each session looks for the first time, and finds a crowd
        parties[number].release()
        parties[number + 1].grant.check()
    for number in range(2, 6):
        effects = len(faults.effects)
        sent.clear()
        parties[number].release()
        parties[number + 1].grant.check()
        crowd.settle()
        reads = asked(faults.effects[effects:])
        assert [type(each) for each in reads] == [Get, Exists], "the counter path, and the own node behind it"
        assert [type(each) for each in sent] == [Multi]
        assert sum(party.wakes for party in parties) == number + 1, "one is woken"
    for party in parties[6:]:
        party.release()
    assert nodes.contenders("a") == []


def test_the_watermark_is_the_last_holders_number_and_grows(crowd: Line, zk: zkfence.Client, nodes: Nodes) -> None:
    counter = nodes.contenders("a")[0].rpartition("/")[0]
    marks = []
    for party in crowd.parties:
        grant = party.grant
        party.release()
        marks.append(load_watermark(zk.get(counter)[0]))
        assert marks[-1] <= grant.token.sequence
    assert marks == sorted(marks)
    assert len(set(marks)) >= CROWD - 17, "as long as there is a crowd"
    assert max(marks) <= crowd.parties[-1].grant.token.sequence


def test_one_that_leaves_the_crowd_without_having_held_writes_no_watermark_and_lets_nobody_in(
    faults: Faults, crowd: Line, zk: zkfence.Client, other_zk: zkfence.Client, zkfence_namespace: str, nodes: Nodes,
    sent: list[Operation], eventually: Eventually,
) -> None:  # fmt: skip
    counter = nodes.contenders("a")[0].rpartition("/")[0]
    lock = FencedLock(other_zk, "a", namespace=zkfence_namespace)
    impatient = crowd.stand(lock, timeout=0.6)
    behind = crowd.stand(lock)
    before, _ = zk.get(counter)
    effects = len(faults.effects)
    with pytest.raises(LockTimeout):
        impatient.acquiring.result()
    eventually(lambda: behind.wakes == 1, "the one behind it was woken")
    crowd.settle()
    assert not behind.granted
    reads = [
        [type(each) for each in effect.operations] for effect in faults.effects[effects:] if isinstance(effect, Flight)
    ]
    assert reads == [[Get, Exists], [Children], [Get]], "it lists once, and watches the one that is before it now"
    assert zk.get(counter)[0] == before
    assert not any(isinstance(each, Multi) for each in sent)
    tokens = []
    for party in [*crowd.parties[:CROWD], behind]:
        tokens.append(party.grant.token)
        party.release()
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("kind", ["reader", "semaphore"])
def test_who_may_hold_beside_others_writes_no_watermark(
    zk: zkfence.Client, zkfence_namespace: str, kind: str, sent: list[Operation], line: Line
) -> None:
    if kind == "reader":
        lock: Any = FencedReadLock(zk, "a", namespace=zkfence_namespace)
    else:
        lock = FencedSemaphore(zk, "a", permits=20, namespace=zkfence_namespace)
    parties = [line.stand(lock) for _ in range(20)]
    sent.clear()
    for party in parties:
        party.release()
    assert not any(isinstance(part, SetData) for each in sent if isinstance(each, Multi) for part in each.operations)
    assert zk.get(f"{zkfence_namespace}/locks/a/1")[0] == b""


JUNK = [
    b"junk", b"\xff", b"[]", b"7", b"null", b'{"v":2,"gone":1000}', b'{"gone":1000}', b'{"v":1}',
    b'{"v":1,"gone":null}',
    b'{"v":1,"gone":[]}', b'{"v":1,"gone":"1000"}', b'{"v":1,"gone":-5}', b'{"v":1,"gone":1e3}', b'{"v":1,"gone":true}',
    b'{"v":1,"gone":NaN}', b'{"v":1,"gone":Infinity}', b'{"v":1,"gone":2}',
]  # fmt: skip


def test_a_watermark_that_is_junk_or_old_never_grants(
    crowd: Line, zk: zkfence.Client, other_zk: zkfence.Client, zkfence_namespace: str, nodes: Nodes,
    eventually: Eventually,
) -> None:  # fmt: skip
    counter = nodes.contenders("a")[0].rpartition("/")[0]
    lock = FencedLock(other_zk, "a", namespace=zkfence_namespace)
    lock._memory = crowd.parties[1].lock._memory
    tokens = []
    for data, party in zip(JUNK, crowd.parties, strict=False):
        zk.set(counter, data)
        assert lock.try_acquire() is None
        with pytest.raises(LockTimeout):
            lock.acquire(timeout=0.02)
        eventually(lambda: len(nodes.contenders("a")) == CROWD - len(tokens), "they have left")
        waiting = nodes.contenders("a")
        zk.delete(waiting[5])  # it has to queue anew, and the one behind it has lost its predecessor
        eventually(lambda waiting=waiting: len(nodes.contenders("a")) == len(waiting), "it stands in line anew")
        crowd.settle()
        assert sum(party.granted for party in crowd.parties) == len(tokens) + 1, data
        holders = [party for party in crowd.parties if party.granted and party.grant.remaining()]
        assert len(holders) == 1
        tokens.append(holders[0].grant.token)
        del party
        holders[0].release()
        eventually(lambda: sum(party.granted for party in crowd.parties) == len(tokens) + 1, "the next one holds")
    assert tokens == sorted(set(tokens))
    serve_all(crowd)
    assert nodes.contenders("a") == []


def serve_all(line: Line) -> list[zkfence.Token]:
    """Release whoever holds until everybody has held."""
    tokens = []
    left = [party for party in line.parties if not party.granted or party.grant.remaining()]
    deadline = time.monotonic() + 60
    while left:
        assert time.monotonic() < deadline
        holding = [party for party in left if party.granted]
        assert len(holding) <= 1
        for party in holding:
            assert party.lock._session.client.exists(party.grant.path), "it holds, and has a node"
            tokens.append(party.grant.token)
            party.release()
            left.remove(party)
        time.sleep(0.001)
    assert tokens == sorted(set(tokens))
    return tokens


def test_one_that_looks_again_in_a_crowd_is_not_granted_before_its_turn(
    crowd: Line, zk: zkfence.Client, nodes: Nodes
) -> None:
    """Not even the next one, which may take the watermark for its predecessor's."""
    parties = crowd.parties
    for number in range(3):
        parties[number].release()
        parties[number + 1].grant.check()
    for path in nodes.contenders("a"):
        zk.set(path, zk.get(path)[0])
    crowd.settle()
    assert all(party.wakes for party in parties[4:]), "every one of them has looked again"
    assert sum(party.granted for party in parties) == 4
    serve_all(crowd)


def test_a_reader_in_the_crowd_is_waited_for_by_those_behind_it(
    crowd: Line, zk: zkfence.Client, zkfence_namespace: str, nodes: Nodes
) -> None:
    """Its name is not the one that is guessed."""
    for kind in (FencedReadLock, FencedReadLock, FencedLock, FencedReadLock, FencedLock):
        crowd.stand(kind(zk, "a", namespace=zkfence_namespace))
    tokens = []
    for party in crowd.parties:
        tokens.append(party.grant.token)
        party.release()
    assert tokens == sorted(set(tokens))
    assert nodes.contenders("a") == []


def test_another_kind_in_the_crowd_is_told_of(
    crowd: Line, zk: zkfence.Client, other_zk: zkfence.Client, zkfence_namespace: str, nodes: Nodes
) -> None:
    counter = nodes.contenders("a")[0].rpartition("/")[0]
    stray = zk.create(f"{counter}/s3-", b"{}", ephemeral=True, sequence=True)
    lock = FencedLock(other_zk, "a", namespace=zkfence_namespace)
    for _ in range(2):
        with pytest.raises(MixedKinds) as caught:
            lock.acquire(timeout=10)
        assert caught.value.path == stray
    zk.delete(stray)
    serve_all(crowd)


# --- everything at once -----------------------------------------------------------------------------------------


class Witness:
    """Sees who holds, and which nodes have been deleted behind the holders' backs."""

    def __init__(self) -> None:
        self.tokens: list[zkfence.Token] = []
        self.overlaps: list[str] = []
        self._lock = threading.Lock()
        self._inside: dict[str, zkfence.Grant] = {}
        self._deleted: set[str] = set()

    def deleting(self, path: str) -> None:
        with self._lock:
            self._deleted.add(path)

    def enter(self, grant: zkfence.Grant) -> None:
        """A grant whose node was deleted before is a zombie's, and takes no part. So are those that it finds."""
        with self._lock:
            if grant.path in self._deleted or not grant.remaining():
                return
            for path, other in self._inside.items():
                if path not in self._deleted and other.remaining():
                    self.overlaps.append(f"{grant!r} beside {other!r}")
            if self.tokens and grant.token <= self.tokens[-1]:
                self.overlaps.append(f"{grant!r} after {self.tokens[-1].dotted}")
            self.tokens.append(grant.token)
            self._inside[grant.path] = grant

    def leave(self, grant: zkfence.Grant) -> None:
        with self._lock:
            self._inside.pop(grant.path, None)


class Chaos:
    """Deletes contenders and idle counter paths, and cuts connections."""

    def __init__(self, zk: KazooClient, clients: list[zkfence.Client], path: str, witness: Witness, seed: int) -> None:
        self._zk, self._clients, self._path, self._witness = zk, clients, path, witness
        self._chance = random.Random(seed)
        self.done = {"contender": 0, "counter path": 0, "connection": 0, "junk": 0}

    def act(self) -> None:
        what = self._chance.choice(["contender", "contender", "counter path", "connection", "junk"])
        try:
            if what == "connection":
                drop_connection(self._chance.choice(self._clients))
            else:
                epochs = self._zk.get_children(self._path)
                counter = f"{self._path}/{self._chance.choice(epochs)}"
                if what == "contender":
                    doomed = f"{counter}/{self._chance.choice(self._zk.get_children(counter))}"
                    self._witness.deleting(doomed)
                    self._zk.delete(doomed)
                elif what == "junk":
                    self._zk.set(counter, self._chance.choice(JUNK[:-1]))
                else:
                    self._zk.delete(counter)  # which only works when nobody is there
        except (NoNodeError, NotEmptyError, IndexError):
            return
        self.done[what] += 1


@pytest.mark.parametrize("seconds", [4.0, pytest.param(20.0, marks=pytest.mark.long)], ids=["short", "long"])
def test_chaos_never_makes_two_holders_and_everybody_is_served(
    connect: Connect, zk: zkfence.Client, zkfence_namespace: str, nodes: Nodes, seconds: float,
    eventually: Eventually,
) -> None:  # fmt: skip
    clients = [connect() for _ in range(3)]
    shared = [FencedLock(client, "a", namespace=zkfence_namespace) for client in clients]
    shared[0].acquire().release()
    witness = Witness()
    seed = random.randrange(10**6)
    chaos = Chaos(zk, clients, f"{zkfence_namespace}/locks/a", witness, seed)
    served: list[int] = [0] * 24
    failures: list[BaseException] = []
    stop = threading.Event()

    def work(number: int) -> None:
        chance = random.Random(f"{seed} {number}")
        lock = shared[number % 3] if number % 2 else FencedLock(clients[number % 3], "a", namespace=zkfence_namespace)
        try:
            while not stop.is_set():
                try:
                    grant = lock.acquire(timeout=chance.choice([0.01, 0.1, 30.0, 30.0, 30.0]))
                except LockTimeout as error:
                    if error.timeout > 1:
                        raise  # everybody is served
                    continue
                witness.enter(grant)
                if chance.random() < 0.3:
                    time.sleep(chance.random() * 0.003)
                witness.leave(grant)
                grant.release()
                served[number] += 1
                if chance.random() < 0.3:
                    time.sleep(chance.random() * 0.05)  # now and then nobody is there
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds
    while time.monotonic() < until and not failures:
        chaos.act()
        time.sleep(0.01)
    stop.set()
    for thread in threads:
        thread.join(40)
        assert not thread.is_alive()
    assert not failures, f"seed {seed}: {failures}"
    assert not witness.overlaps, f"seed {seed}: {witness.overlaps}"
    assert all(served), f"seed {seed}: {served}, {chaos.done}"
    assert sum(chaos.done.values()) > 20, chaos.done
    eventually(lambda: nodes.contenders("a") == [], "nothing stays behind", within=10.0)
