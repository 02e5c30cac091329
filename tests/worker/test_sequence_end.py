"""The end of ZooKeeper's counter, on a real server whose counters are there, and deletions while a lock is rolled."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, Final

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError, NotEmptyError
from kazoo.recipe.lock import Lock as KazooLock

import zkfence
from zkfence import FencedLock, FencedReadLock
from zkfence._core._layout import CEILING, counter_path
from zkfence.testing import LocalEnsemble

from ..tools.counters import set_counters
from .conftest import Background, Nodes
from .journal import Journal
from .test_tokens_across_processes import run, workers

Start = Callable[[Callable[[], Any]], Background]

LAST: Final = 2**31 - 1  # where the counter stands still: every later child gets this number too
# What the counter gives next: a lock of the name has its counter there.
COUNTERS: Final = {
    "ceiling": CEILING - 25,
    "shortly-before-the-end": LAST - 7,
    "the-end": LAST,
    "negative": -(2**31) + 10,
}
ROUNDS: Final = 6
RIVALS: Final = [f"rivals-{number}" for number in range(ROUNDS)]
DELETED: Final = [f"deleted-{number}" for number in range(ROUNDS)]
NAMESPACE: Final = "/ends"


@pytest.fixture(scope="module")
def ensemble() -> Iterator[LocalEnsemble]:
    """A server of its own, on which counters have come to their ends."""
    with LocalEnsemble(durable=False) as ensemble:
        with zkfence.connect(ensemble.hosts) as client:
            counters = {open_lock(client, f"/{name}", "a"): number for name, number in COUNTERS.items()}
            counters |= {open_lock(client, f"/{name}-x", "a"): number for name, number in COUNTERS.items()}
            counters |= {open_lock(client, NAMESPACE, name): LAST for name in (*RIVALS, *DELETED)}
            counters["/kazoo"] = LAST
            client.create("/kazoo")
        set_counters(ensemble, counters)
        yield ensemble


def open_lock(client: zkfence.Client, namespace: str, name: str) -> str:
    """The lock's counter path."""
    with FencedLock(client, name, namespace=namespace) as grant:
        return str(PurePosixPath(grant.path).parent)


@pytest.fixture
def clients(ensemble: LocalEnsemble) -> Iterator[list[zkfence.Client]]:
    with ExitStack() as stack:
        yield [stack.enter_context(zkfence.connect(ensemble.hosts, session_timeout=20.0)) for _ in range(4)]


def at_once(*work: Callable[[], object]) -> None:
    """Do all of it in threads that start together; raise what any of them raises."""
    barrier = threading.Barrier(len(work))

    def wait_and(each: Callable[[], object]) -> Callable[[], object]:
        def start() -> object:
            barrier.wait()
            return each()

        return start

    for background in [Background(wait_and(each)) for each in work]:
        background.result(within=60)


@pytest.mark.parametrize("name", COUNTERS)
def test_forty_contenders_of_several_sessions_cross_the_end(name: str, clients: list[zkfence.Client]) -> None:
    namespace = f"/{name}"
    journal = Journal(clients[0], f"/journal/{name}")
    served: list[zkfence.Token] = []  # appended to by holders only

    def contend(client: zkfence.Client) -> None:
        lock = FencedLock(client, "a", namespace=namespace)
        for _ in range(2):
            with lock.acquire(timeout=60) as grant:
                assert journal.enter(client, grant)
                served.append(grant.token)
                assert journal.enter(client, grant)

    at_once(*(lambda client=client: contend(client) for client in clients for _ in range(10)))  # type: ignore[misc]
    assert len(served) == 80, "everybody is served"
    assert served == sorted(set(served)), "in the order of the numbers, one at a time"
    assert journal.check() == served
    assert all(token.sequence < CEILING for token in served)
    assert {token.epoch for token in served} == ({1, 2} if name == "ceiling" else {2}), "it was rolled once"
    nodes = Nodes(clients[0], namespace)
    assert nodes.contenders("a") == []
    assert nodes.epochs("a") == [1, 2]


@pytest.mark.parametrize("name", ["ceiling", "shortly-before-the-end"])
def test_contenders_of_several_processes_cross_the_end(name: str, ensemble: LocalEnsemble) -> None:
    namespace = f"/{name}-x"
    with workers(ensemble.hosts, namespace) as started, ensemble.client() as zk:
        held = run(started, 1.5)
        assert Nodes(zk, namespace).contenders("a") == []
    tokens = [zkfence.Token(token) for token, _, _ in held]
    assert len(tokens) > 40
    assert tokens == sorted(set(tokens))
    assert all(until <= later for (_, _, until), (_, later, _) in pairwise(held)), "two held at once"
    assert {token.epoch for token in tokens} == ({1, 2} if name == "ceiling" else {2})


@pytest.mark.parametrize("name", RIVALS)
def test_of_two_that_roll_at_once_one_does_and_the_other_follows(name: str, clients: list[zkfence.Client]) -> None:
    nodes = Nodes(clients[2], NAMESPACE)
    (before,) = nodes.epochs(name)
    issued = int(clients[2].get(f"{NAMESPACE}/epoch")[0])
    tokens: list[zkfence.Token] = []

    def acquire(client: zkfence.Client) -> None:
        with FencedLock(client, name, namespace=NAMESPACE).acquire(timeout=20) as grant:
            tokens.append(grant.token)

    at_once(*(lambda client=client: acquire(client) for client in clients[:2]))  # type: ignore[misc]
    assert [(token.epoch, token.sequence) for token in tokens] == [(issued + 1, 0), (issued + 1, 1)]
    assert nodes.epochs(name) == [before, issued + 1]
    assert int(clients[2].get(f"{NAMESPACE}/epoch")[0]) == issued + 1
    assert nodes.contenders(name) == []


@pytest.mark.parametrize("name", DELETED)
def test_a_deletion_while_two_roll_leaves_one_holder_and_rising_tokens(
    name: str, clients: list[zkfence.Client]
) -> None:
    path = f"{NAMESPACE}/locks/{name}"
    journal = Journal(clients[2], f"/journal/{name}")
    (before,) = Nodes(clients[2], NAMESPACE).epochs(name)
    whole = DELETED.index(name) % 2 == 0

    def acquire(client: zkfence.Client) -> None:
        for _ in range(5):
            with FencedLock(client, name, namespace=NAMESPACE).acquire(timeout=20) as grant:
                journal.enter(client, grant)

    at_once(
        *(lambda client=client: acquire(client) for client in clients[:2]),  # type: ignore[misc]
        lambda: delete(clients[2], path if whole else counter_path(path, before)),
    )
    tokens = journal.check()
    assert all(zkfence.Token(token).epoch > before for token in tokens)
    with FencedLock(clients[3], name, namespace=NAMESPACE).acquire(timeout=20) as grant:
        assert grant.token > max(tokens)
    assert Nodes(clients[2], NAMESPACE).contenders(name) == []


def test_kazoos_own_lock_has_every_contender_hold_at_once_there(clients: list[zkfence.Client]) -> None:
    """The control: the server's counter really stands still."""
    locks = [KazooLock(client, "/kazoo") for client in clients]
    assert all(lock.acquire(timeout=10) for lock in locks)
    for lock in locks:
        lock.release()


def delete(zk: KazooClient, path: str) -> None:
    """As an administrator does, with whatever is under it; others go on creating there meanwhile."""
    with suppress(NoNodeError, NotEmptyError):
        zk.delete(path, recursive=True)


class Vandal:
    """Deletes, in an order that the seed chooses, what a lock consists of."""

    def __init__(self, zk: KazooClient, namespace: str, seed: int) -> None:
        self._zk = zk
        self._lock = f"{namespace}/locks/a"
        self._random = random.Random(seed)

    def strike(self) -> None:
        epochs = []
        with suppress(NoNodeError):
            epochs = sorted(int(name) for name in self._zk.get_children(self._lock))
        match self._random.randrange(4):
            case 0:
                delete(self._zk, self._lock)
            case 1 if epochs:
                delete(self._zk, counter_path(self._lock, epochs[-1]))
            case 2 if epochs:
                delete(self._zk, counter_path(self._lock, self._random.choice(epochs)))
            case _ if epochs:
                self._delete_a_contender(counter_path(self._lock, self._random.choice(epochs)))

    def _delete_a_contender(self, path: str) -> None:
        with suppress(NoNodeError):
            names = sorted(self._zk.get_children(path))
            if names:
                self._zk.delete(f"{path}/{self._random.choice(names)}")


@pytest.mark.parametrize("readers", [0, 2], ids=["exclusive", "readers too"])  # of every session's four threads
@pytest.mark.parametrize(
    ("seed", "strikes"),
    [(1, 30), *(pytest.param(seed, 500, marks=pytest.mark.long) for seed in (2, 3))],
)
def test_deletions_while_others_roll_wait_and_hold(
    connect: Callable[..., zkfence.Client], zkfence_namespace: str, monkeypatch: pytest.MonkeyPatch, nodes: Nodes,
    in_background: Start, eventually: Callable[..., None], seed: int, strikes: int, readers: int,
) -> None:  # fmt: skip
    for kind in (FencedLock, FencedReadLock):
        monkeypatch.setattr(kind, "_ceiling", 6)  # it is rolled all the time
    sessions = [connect() for _ in range(3)]
    zk = connect()
    journal = Journal(zk, f"/journal{zkfence_namespace}")
    over = threading.Event()
    granted: list[int] = []

    def contend(client: zkfence.Client, *, shared: bool) -> None:
        lock = (FencedReadLock if shared else FencedLock)(client, "a", namespace=zkfence_namespace)
        while not over.is_set():
            with lock.acquire(timeout=30) as grant:
                granted.append(grant.token)
                if journal.enter(client, grant, shared=shared):
                    journal.enter(client, grant, shared=shared)

    contending = [
        in_background(lambda client=client, number=number: contend(client, shared=number < readers))  # type: ignore[misc]
        for client in sessions
        for number in range(4)
    ]
    vandal = Vandal(zk, zkfence_namespace, seed)
    for _ in range(strikes):
        vandal.strike()
        before = len(granted)
        eventually(lambda before=before: len(granted) > before, "the lock is granted again", within=20)
    over.set()
    for each in contending:
        each.result(within=30)
    assert len(set(granted)) == len(granted), "a token was issued twice"
    assert set(journal.check()) <= set(granted)
    eventually(lambda: nodes.contenders("a") == [], "nothing stays behind")
    with FencedLock(zk, "a", namespace=zkfence_namespace).acquire(timeout=10) as grant:
        assert grant.token > max(granted)
