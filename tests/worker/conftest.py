"""What the tests of the worker's side share: clients on a real server, and faults at chosen moments."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import Callback

import zkfence
from zkfence import FencedLock, _lock
from zkfence._core._operations import ConnectionLost, Create, Effect, Flight, Landed, Wait
from zkfence._lock import _Lock
from zkfence._threads import Driver
from zkfence.testing import LocalEnsemble

from ..tools.waiting import eventually


@pytest.fixture(name="eventually")
def eventually_fixture() -> Callable[..., None]:
    return eventually


@pytest.fixture
def connect(zkfence_ensemble: LocalEnsemble) -> Iterator[Callable[..., zkfence.Client]]:
    """Clients on the real server, ended with the test."""
    with ExitStack() as stack:
        yield lambda path="", **options: stack.enter_context(
            zkfence.connect(zkfence_ensemble.hosts + path, **{"session_timeout": 10.0, **options})
        )


@pytest.fixture
def zk(connect: Callable[..., zkfence.Client]) -> zkfence.Client:
    return connect()


@pytest.fixture
def other_zk(connect: Callable[..., zkfence.Client]) -> zkfence.Client:
    return connect()


class Nodes:
    """Looks at a lock's nodes the way an administrator would."""

    def __init__(self, zk: KazooClient, namespace: str) -> None:
        self._zk = zk
        self._namespace = namespace

    def epochs(self, component: str) -> list[int]:
        path = f"{self._namespace}/locks/{component}"
        try:
            return sorted(int(name) for name in self._zk.get_children(path))
        except NoNodeError:
            return []

    def contenders(self, component: str) -> list[str]:
        path = f"{self._namespace}/locks/{component}"
        found: list[str] = []
        for epoch in self.epochs(component):
            with suppress(NoNodeError):  # the lock is being deleted while we look
                names = sorted(self._zk.get_children(f"{path}/{epoch}"), key=lambda name: name[-10:])  # by number
                found += [f"{path}/{epoch}/{name}" for name in names]
        return found


@pytest.fixture
def nodes(connect: Callable[..., zkfence.Client], zkfence_namespace: str) -> Nodes:
    return Nodes(connect(), zkfence_namespace)


def end_session(client: KazooClient, hosts: str) -> None:
    """End the client's session on the server, behind its back."""
    twin = KazooClient(hosts, client_id=client.client_id)
    twin.start()
    twin.stop()
    twin.close()


def break_connection(client: KazooClient) -> None:
    """Break the client's connection, as a network does. It may come back at once."""
    with socket.socket(fileno=os.dup(client._connection._socket.fileno())) as connection:
        connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture(name="end_session")
def end_session_fixture(zkfence_ensemble: LocalEnsemble) -> Callable[[KazooClient], None]:
    return lambda client: end_session(client, zkfence_ensemble.hosts)


def contender_in(effect: Effect) -> Create | None:
    """The creation of a contender, if that is what the effect is."""
    first = effect.operations[0] if isinstance(effect, Flight) else None
    return first if isinstance(first, Create) and first.contender else None


class Faults:
    """Chooses what the driver of the next acquisitions does wrong. The server and everything else are real."""

    def __init__(self) -> None:
        self.lost_replies = 0  # creates that are applied, and whose reply is lost
        self.lost_requests = 0  # creates that never arrive
        self.raise_at: int | None = None  # the effect, counted from 0, at which `error` is raised …
        self.error: BaseException = KeyboardInterrupt()
        self.after_sending = True  # … when its requests are under way, or before they leave
        self.effects: list[Effect] = []
        self.before: Callable[[Effect], None] = lambda effect: None  # called before each effect is carried out

    def driver(self, base: type[Driver]) -> type[Driver]:
        faults = self

        class FaultyDriver(base):  # type: ignore[misc,valid-type]
            def _do(self, effect: Effect) -> Landed | set[str] | None:
                number = len(faults.effects)
                faults.effects.append(effect)
                if number == faults.raise_at and not faults.after_sending:
                    raise faults.error
                faults.before(effect)
                create = contender_in(effect)
                if create and faults.lost_requests:
                    faults.lost_requests -= 1
                    assert isinstance(effect, Flight)
                    return Landed(self._session.now(), (ConnectionLost(),) * len(effect.operations))
                landed: Landed | set[str] | None = super()._do(effect)
                if number == faults.raise_at:
                    raise faults.error
                if create and faults.lost_replies:
                    faults.lost_replies -= 1
                    assert isinstance(landed, Landed)
                    return Landed(landed.sent_at, (ConnectionLost(),) * len(landed.results))
                return landed

        return FaultyDriver


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    faults = Faults()
    monkeypatch.setattr(_lock, "Driver", faults.driver(_lock.Driver))
    return faults


@pytest.fixture
def in_background() -> Iterator[Callable[[Callable[[], Any]], Background]]:
    started: list[Background] = []

    def start(work: Callable[[], Any]) -> Background:
        started.append(Background(work))
        return started[-1]

    yield start
    for background in started:
        background.thread.join(20)
        assert not background.thread.is_alive(), "a background step of the test did not end"


class Background:
    """A step of a test in a thread of its own; `result` waits for it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._result: Any = None
        self._error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error

    @property
    def done(self) -> bool:
        return not self.thread.is_alive()

    def result(self, within: float = 20.0) -> Any:
        self.thread.join(within)
        assert self.done, "not finished in time"
        if self._error is not None:
            raise self._error
        return self._result


@pytest.fixture
def lock(zk: zkfence.Client, zkfence_namespace: str) -> FencedLock:
    return FencedLock(zk, "a", namespace=zkfence_namespace)


@pytest.fixture
def other(other_zk: zkfence.Client, zkfence_namespace: str) -> FencedLock:
    """The same lock, in another session."""
    return FencedLock(other_zk, "a", namespace=zkfence_namespace)


class Party:
    """One that acquires a lock in a thread of its own."""

    def __init__(self, lock: _Lock) -> None:
        self.lock = lock
        self.waits = False
        self.wakes = 0
        self.acquiring: Background

    @property
    def granted(self) -> bool:
        return self.acquiring.done

    @property
    def grant(self) -> zkfence.Grant:
        grant: zkfence.Grant = self.acquiring.result(within=30.0)
        return grant

    def release(self) -> None:
        self.grant.release()


class Line:
    """Lets parties stand in line, one after another, and tells which of them wait."""

    def __init__(self, base: type[Driver]) -> None:
        self.parties: list[Party] = []
        self._current = threading.local()
        current = self._current

        class WatchedDriver(base):  # type: ignore[misc,valid-type]
            def _do(self, effect: Effect) -> Landed | set[str] | None:
                party: Party | None = getattr(current, "party", None)
                if party is None or not isinstance(effect, Wait):
                    return super()._do(effect)  # type: ignore[no-any-return]
                party.waits = True
                try:
                    return super()._do(effect)  # type: ignore[no-any-return]
                finally:
                    party.waits = False
                    party.wakes += 1

        self.driver = WatchedDriver

    def stand(self, lock: _Lock, *, timeout: float = 20.0) -> Party:
        """Returns when the party was granted the lock, or stands in line and waits."""
        party = Party(lock)

        def acquire() -> zkfence.Grant:
            self._current.party = party
            return lock.acquire(timeout=timeout)

        party.acquiring = Background(acquire)
        self.parties.append(party)
        self.settle(party)
        return party

    def settle(self, *parties: Party) -> None:
        """Wait until each of them (all where none is named) was granted the lock, or waits, and knows the news."""
        parties = parties or tuple(self.parties)
        for client in {party.lock._session.client for party in parties}:
            deliver_events(client)
        for party in parties:
            eventually(lambda party=party: party.granted or party.waits, "it is granted or waits", within=20.0)


def deliver_events(client: KazooClient) -> None:
    """Wait until the client has called back for every watch that has fired by now."""
    delivered = threading.Event()
    client.exists("/")  # a session's events come before the answers to what is asked later
    client.handler.dispatch_callback(Callback("watch", delivered.set, ()))
    assert delivered.wait(5)


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    line = Line(_lock.Driver)
    monkeypatch.setattr(_lock, "Driver", line.driver)
    yield line
    for party in line.parties:
        party.acquiring.thread.join(30)
        assert party.acquiring.done, "a party of the test did not end"
