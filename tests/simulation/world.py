"""A world of workers, sessions and faults around the model, run by a seeded scheduler: a seed replays exactly.

The workers run the real core (`zkfence._core`), whose steps ask for operations and waits; this is their driver. After
each grant the rules are checked against the leader's state, the truth that no worker can see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from zkfence._core import _operations as core
from zkfence._core._acquiring import Acquisition, Procedure
from zkfence._core._attempt import Attempt
from zkfence._core._counter import CounterPath
from zkfence._core._kinds import EXCLUSIVE, READ, Kind
from zkfence._core._layout import Layout, dump, load_namespace_id, slot_name
from zkfence._core._leaving import leave
from zkfence._core._queue import Granted
from zkfence._core._slots import SlotAcquisition

from .zookeeper import Connection, Leader, Request, children_of

CEILING = 6
LAYOUT = Layout("/z")
LOCK = "a"
STEPS = 20_000  # more than any run needs: it hangs


class Violation(AssertionError):
    """A rule is broken."""


class Client:
    """One client and its session; what the protocol calls its surroundings."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.session_id: int | None = None
        self.connection = 0
        self.session_timeout = 10.0
        self.link: Connection | None = None
        self.seen = 0  # the newest state that a server has shown
        self.tasks: list[Task] = []
        self.memories: dict[str, CounterPath | None] = {}
        self.slots: dict[int, CounterPath] = {}

    def remaining(self) -> float:
        """Sometimes the last proof is too old, and a grant has to be proved by a write."""
        if self.world.is_calm or self.world.random.random() < 0.8:
            return self.session_timeout
        return 0.0


@dataclass(eq=False)
class Flight:
    task: Task
    results: list[object]
    missing: int


class Task:
    """One worker's steps, and what they wait for."""

    def __init__(self, client: Client, steps: Iterator[Any], name: str) -> None:
        self.client = client
        self.name = name
        self._steps: Any = steps
        self.answer: object = None
        self.effect: core.Effect | None = None
        self.flight: Flight | None = None
        self.fired: set[str] = set()
        self.is_changed = False
        self.is_done = False
        self.connection = 0
        client.tasks.append(self)

    @property
    def is_runnable(self) -> bool:
        if self.is_done or self.flight is not None:
            return False
        link = self.client.link
        match self.effect:
            case core.Ready() | core.Flight():
                return link is not None
            case core.Wait():
                return self.is_changed
        return True

    def changed(self, path: str) -> None:
        self.fired.add(path)
        self.is_changed = True

    def run(self) -> None:
        effect, self.effect = self.effect, None
        answer: object = None
        if isinstance(effect, core.Flight):
            if self.connection != self.client.connection:  # it was not connected when it wanted to send
                answer = core.Landed(0.0, (core.ConnectionLost(),) * len(effect.operations))
            else:
                link = self.client.link
                assert link is not None
                self.flight = Flight(self, [None] * len(effect.operations), len(effect.operations))
                for index, operation in enumerate(effect.operations):
                    link.requests.append(Request(operation, self.flight, index))
                return
        elif isinstance(effect, core.Wait):
            answer, self.fired, self.is_changed = self.fired, set(), False
        elif effect is None:
            answer = self.answer
        self.answer = None
        try:
            self.effect = self._steps.send(answer)
            self.connection = self.client.connection if self.client.link is not None else -1
        except StopIteration:
            self.is_done = True

    def land(self, index: int, result: object) -> None:
        assert self.flight is not None
        self.flight.results[index] = result
        self.flight.missing -= 1
        if not self.flight.missing:
            self.answer = core.Landed(0.0, tuple(self.flight.results))
            self.flight = None


@dataclass
class Grant:
    granted: Granted
    attempts: Sequence[Attempt]
    worker: str
    is_over: bool = False


@dataclass(frozen=True)
class Scenario:
    """What the workers do. ``kinds`` are dealt out to them in turn."""

    kinds: Sequence[Kind]
    clients: int = 2
    workers: int = 3
    rounds: int = 5
    faults: float = 0.015  # how often something may go wrong, per step
    outsiders: bool = True  # somebody deletes nodes
    ceiling: int = CEILING


@dataclass
class World:
    seed: int
    scenario: Scenario
    random: Random = field(init=False)
    is_calm: bool = False
    grants: list[Grant] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.leader = Leader(self.random)
        self.sessions = 100
        self.ids = 0
        self.late: list[tuple[Connection, Request]] = []
        self.clients = [Client(self, number) for number in range(self.scenario.clients)]
        for number in range(self.scenario.workers):
            client = self.clients[number % len(self.clients)]
            kind = self.scenario.kinds[number % len(self.scenario.kinds)]
            Task(client, self.worker(client, kind, f"w{number}"), f"w{number}")

    def fresh_id(self) -> str:
        self.ids += 1
        return f"id{self.ids}"

    # --- the workers --------------------------------------------------------------------------------------------

    def worker(self, client: Client, kind: Kind, name: str) -> Iterator[core.Effect]:
        for _ in range(self.scenario.rounds):
            procedure = self.procedure(client, kind)
            granted = yield from self.interrupted(procedure.run(), client)
            self.remember(client, procedure)
            if granted is not None:
                grant = self.granted(procedure, granted, name)
                for _ in range(self.random.randrange(4)):
                    yield core.Jitter(0)
                grant.is_over = True
            for attempt in procedure.attempts:
                try:
                    yield from leave(attempt, client)
                except core.SessionLost:
                    attempt.session_lost()

    def interrupted(self, steps: Any, client: Client) -> Iterator[core.Effect]:
        """The steps' result; sometimes they are given up half way, as by a timeout or a Ctrl-C."""
        answer: object = None
        while True:
            try:
                effect = steps.send(answer)
            except StopIteration as stop:
                return stop.value
            if not self.is_calm and self.random.random() < self.scenario.faults / 8:
                if self.random.random() < 0.5 and not isinstance(effect, core.Wait):
                    yield effect  # what is under way stays under way
                steps.close()
                return None
            answer = yield effect

    def attempt(self, name: str, kind: Kind, guid: str) -> Attempt:
        return Attempt(LAYOUT, name, guid, dump(guid=guid), kind)

    def acquisition(self, client: Client, attempt: Attempt, memory: CounterPath | None, *, wait: bool) -> Acquisition:
        return Acquisition(attempt, client, memory, fresh_id=self.fresh_id, wait=wait, ceiling=self.scenario.ceiling)

    def procedure(self, client: Client, kind: Kind) -> Procedure:
        guid = self.fresh_id()
        attempt = self.attempt(LOCK, kind, guid)
        wait = self.is_calm or self.random.random() < 0.8
        queue = self.acquisition(client, attempt, client.memories.get(kind.prefix), wait=wait)
        if not kind.permits:
            return queue

        def enter(slot: int) -> Acquisition:
            slot_attempt = self.attempt(slot_name(LOCK, slot), EXCLUSIVE, guid)
            return self.acquisition(client, slot_attempt, client.slots.get(slot), wait=False)

        slots = self.random.sample(range(kind.permits), kind.permits)
        return SlotAcquisition(queue, client, slots, enter, client.slots, wait=wait)

    def remember(self, client: Client, procedure: Procedure) -> None:
        queue = procedure.queue if isinstance(procedure, SlotAcquisition) else procedure
        assert isinstance(queue, Acquisition)
        client.memories[queue.attempts[0].kind.prefix] = queue.memory

    # --- the rules ----------------------------------------------------------------------------------------------

    def is_live(self, attempt: Attempt) -> bool:
        entry = self.leader.tree.get(attempt.path)
        return entry is not None and entry.czxid == attempt.czxid

    def granted(self, procedure: Procedure, granted: Granted, worker: str) -> Grant:
        """A grant whose nodes are live is the only one of its lock, and has a larger token than all before it."""
        grant = Grant(granted, procedure.attempts, worker)
        self.log.append(f"{worker} is granted {granted.token.dotted} slot {granted.slot}")
        if not all(self.is_live(attempt) for attempt in grant.attempts):
            return grant  # a zombie at birth: the receiver refuses it
        attempt = granted.attempt
        if granted.namespace_id != load_namespace_id("/z", self.leader.tree["/z"].data):
            raise Violation(f"{worker} has the id of another namespace")
        for earlier in self.grants:
            if earlier.granted.namespace_id != granted.namespace_id:
                continue
            if earlier.granted.attempt.lock_name != attempt.lock_name:
                continue
            if READ in (attempt.kind, earlier.granted.attempt.kind) and attempt.kind == earlier.granted.attempt.kind:
                continue  # readers hold side by side
            if earlier.granted.token >= granted.token:
                raise Violation(f"{worker} has token {granted.token.dotted} after {earlier.granted.token.dotted}")
            if not earlier.is_over and all(self.is_live(each) for each in earlier.attempts):
                raise Violation(f"{worker} and {earlier.worker} hold at the same time")
        self.grants.append(grant)
        permits = procedure.attempts[-1].kind.permits
        if permits:
            holding = [each for each in self.grants if not each.is_over and all(map(self.is_live, each.attempts))]
            if len(holding) > permits:
                raise Violation(f"{len(holding)} hold {permits} permits")
        return grant

    def check_end(self) -> None:
        left = [
            path for path, entry in self.leader.tree.items() if entry.ephemeralOwner and not path.endswith("stranger")
        ]
        if left:
            raise Violation(f"nodes stay behind: {left}")

    # --- the scheduler ------------------------------------------------------------------------------------------

    def run(self) -> None:
        for step in range(STEPS):
            if step == STEPS // 4:
                self.is_calm = True
            actions = [*self.progress(), *(() if self.is_calm else self.faults())]
            if all(task.is_done for client in self.clients for task in client.tasks) and not self.late:
                return self.check_end()
            if not actions:
                self.is_calm = True
                actions = [*self.progress()]
                if not actions:
                    raise Violation(f"nothing can go on: {[(t.name, t.effect) for c in self.clients for t in c.tasks]}")
            self.random.choice(actions)()
        raise Violation(f"no end: {[(t.name, t.effect) for c in self.clients for t in c.tasks if not t.is_done]}")

    def progress(self) -> Iterator[Callable[[], object]]:
        for client in self.clients:
            link = client.link
            if link is None:
                yield lambda client=client: self.connect(client)
            else:
                if link.requests and link.session_id in self.leader.live:
                    yield link.execute
                if link.view < self.leader.zxid:
                    yield link.advance
                if link.out:
                    yield lambda client=client: self.deliver(client)
                if link.session_id not in self.leader.live:
                    yield lambda client=client: self.cut(client)
            for task in client.tasks:
                if task.is_runnable:
                    yield task.run
        for late in list(self.late):
            yield lambda late=late: self.execute_late(late)

    def faults(self) -> Iterator[Callable[[], object]]:
        if self.random.random() > self.scenario.faults:
            return
        for client in self.clients:
            if client.link is not None:
                yield lambda client=client: self.cut(client)
                yield lambda client=client: self.expire(client)
        if self.scenario.outsiders:
            yield self.delete_a_contender
            yield self.delete_a_contender
            yield self.delete_the_lock
            yield self.delete_the_namespace
            yield self.make_a_stranger

    def connect(self, client: Client) -> None:
        """To a server that lags as it likes, but not behind what the client has seen."""
        if client.session_id is not None and client.session_id not in self.leader.live:
            client.session_id = None
            self.tell(client, "")
            return
        if client.session_id is None:
            self.sessions += 1
            client.session_id = self.sessions
            self.leader.live.add(self.sessions)
            self.log.append(f"c{client.number} has session {self.sessions}")
        # The leader refuses what an earlier server still sends for a session that has moved on (SessionMoved).
        self.late = [late for late in self.late if late[0].session_id != client.session_id]
        view = self.random.randint(client.seen, self.leader.zxid)
        client.link = Connection(self.leader, client.session_id, view)
        self.tell(client, "")

    def tell(self, client: Client, path: str) -> None:
        for task in client.tasks:
            task.changed(path)

    def deliver(self, client: Client) -> None:
        link = client.link
        assert link is not None
        first = link.out.popleft()
        if isinstance(first, str):
            self.tell(client, first)
            return
        request, result, view = first
        client.seen = max(client.seen, view)  # each answer tells, and no server that is behind it takes the client
        assert isinstance(request.flight, Flight)
        request.flight.task.land(request.index, result)

    def cut(self, client: Client) -> None:
        """Of the requests under way, some have arrived, some arrive late, some never; no answer does."""
        link = client.link
        if link is None:
            return
        self.log.append(f"c{client.number} is cut off")
        while link.requests and self.random.random() < 0.5 and link.session_id in self.leader.live:
            link.execute()
        lost = [entry[0] for entry in link.out if not isinstance(entry, str)]
        if link.requests and self.random.random() < 0.3:
            self.late.append((link, link.requests[0]))
        lost += link.requests
        client.link = None
        client.connection += 1
        for request in lost:
            assert isinstance(request.flight, Flight)
            request.flight.task.land(request.index, core.ConnectionLost())
        self.tell(client, "")

    def execute_late(self, late: tuple[Connection, Request]) -> None:
        self.late.remove(late)
        link, request = late
        is_write = isinstance(request.operation, core.Create | core.Delete | core.Multi)
        if link.session_id in self.leader.live and is_write:
            self.log.append(f"late: {request.operation}")
            self.leader.write(request.operation, link.session_id)

    def expire(self, client: Client) -> None:
        if client.session_id in self.leader.live:
            assert client.session_id is not None
            self.log.append(f"c{client.number}: session {client.session_id} ends")
            self.leader.expire(client.session_id)

    # --- what others do -----------------------------------------------------------------------------------------

    def delete_a_contender(self) -> None:
        found = [path for path, entry in self.leader.tree.items() if entry.ephemeralOwner]
        if found:
            self.delete(self.random.choice(found))

    def delete_the_lock(self) -> None:
        """Or one of its counter paths."""
        lock = LAYOUT.lock(LOCK)
        found = [path for path in self.leader.tree if path == lock or path.rpartition("/")[0] == lock]
        if found:
            self.delete(self.random.choice(found))

    def delete_the_namespace(self) -> None:
        if self.random.random() < 0.2 and "/z" in self.leader.tree:
            self.delete("/z")

    def delete(self, path: str) -> None:
        self.log.append(f"somebody deletes {path}")
        draft = self.leader.draft()
        draft.delete_all(path)
        self.leader.commit(draft)

    def make_a_stranger(self) -> None:
        lock = LAYOUT.lock(LOCK)
        for epoch in children_of(self.leader.tree, lock) if lock in self.leader.tree else ():
            if self.random.random() < 0.3 and f"{lock}/{epoch}/stranger" not in self.leader.tree:
                draft = self.leader.draft()
                draft.create(core.Create(f"{lock}/{epoch}/stranger"))
                self.leader.commit(draft)
