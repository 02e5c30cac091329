"""FencedLock on a real server: holding, waiting, giving up, and what is left behind."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.security import make_acl, make_digest_acl

import zkfence
from zkfence import FencedLock, InvalidName, LockTimeout, NotConnected
from zkfence._core._operations import Check, Flight, Multi, Wait

from .conftest import Background, Faults, Nodes

Start = Callable[[Callable[[], Any]], Background]
Eventually = Callable[..., None]


def test_a_lock_is_held_in_two_lines(lock: FencedLock, other: FencedLock) -> None:
    with lock as grant:
        assert grant.token.dotted == "1.0"
        assert other.try_acquire() is None
    with other.acquire(timeout=5.0) as grant:
        assert grant.token.dotted == "1.2"


def test_making_a_lock_does_no_io() -> None:
    client = zkfence.Client("127.0.0.1:1")
    assert FencedLock(client, "a").name == "a"


def test_tokens_rise_and_no_two_hold_at_once(connect: Callable[..., zkfence.Client], zkfence_namespace: str) -> None:
    tokens: list[int] = []
    holders: list[int] = []
    most: list[int] = []

    def contend(client: zkfence.Client) -> None:
        lock = FencedLock(client, "a", namespace=zkfence_namespace)
        for _ in range(15):
            with lock as grant:
                holders.append(1)
                most.append(len(holders))
                tokens.append(grant.token)
                holders.pop()

    threads = [threading.Thread(target=contend, args=(client,)) for client in (connect(), connect()) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert len(tokens) == 8 * 15
    assert tokens == sorted(set(tokens))


def test_contenders_are_served_in_line(
    lock: FencedLock, other: FencedLock, nodes: Nodes, in_background: Start, eventually: Eventually
) -> None:
    served: list[int] = []
    grant = lock.acquire()
    waiting = []
    for number in range(6):

        def wait(number: int = number) -> None:
            with (lock, other)[number % 2].acquire(timeout=20):
                served.append(number)

        waiting.append(in_background(wait))
        eventually(lambda number=number: len(nodes.contenders("a")) == number + 2, "the contender stands in line")
    grant.release()
    for each in waiting:
        each.result()
    assert served == [0, 1, 2, 3, 4, 5]


def test_a_timeout_is_met_and_leaves_no_node(
    lock: FencedLock, other: FencedLock, nodes: Nodes, eventually: Eventually
) -> None:
    with lock as grant:
        started = time.monotonic()
        with pytest.raises(LockTimeout) as caught:
            other.acquire(timeout=0.3)
        assert time.monotonic() - started >= 0.3
        assert (caught.value.lock_name, caught.value.timeout) == ("a", 0.3)
        eventually(lambda: nodes.contenders("a") == [grant.path], "only the holder is there", within=1.0)


def test_a_hundred_timeouts_let_nothing_grow(
    lock: FencedLock, other: FencedLock, other_zk: zkfence.Client, nodes: Nodes, eventually: Eventually
) -> None:
    def watches() -> int:
        return sum(len(watchers) for watchers in other_zk._data_watchers.values())

    with lock as grant:
        with pytest.raises(LockTimeout):
            other.acquire(timeout=0.05)
        threads, listeners = threading.active_count(), len(other_zk.state_listeners)
        for _ in range(100):
            with pytest.raises(LockTimeout):
                other.acquire(timeout=0.05)
        eventually(lambda: nodes.contenders("a") == [grant.path], "only the holder is there", within=2.0)
        eventually(lambda: watches() <= 1, "at most the holder's node is watched", within=2.0)
        eventually(lambda: threading.active_count() <= threads, "no more threads", within=2.0)
        assert len(other_zk.state_listeners) == listeners
        assert not other._session._held


def test_a_lost_predecessor_that_never_held_does_not_let_the_next_one_in(
    lock: FencedLock, other: FencedLock, nodes: Nodes, in_background: Start, eventually: Eventually
) -> None:
    with lock:
        second = in_background(lambda: other.acquire(timeout=1.0))
        eventually(lambda: len(nodes.contenders("a")) == 2, "the second stands in line")
        third = in_background(lambda: other.acquire(timeout=20))
        eventually(lambda: len(nodes.contenders("a")) == 3, "the third stands in line")
        with pytest.raises(LockTimeout):
            second.result()
        eventually(lambda: len(nodes.contenders("a")) == 2, "the second has left")
        assert not third.done
    third.result().release()


def test_only_the_own_node_and_the_predecessor_are_watched(
    lock: FencedLock, other: FencedLock, other_zk: zkfence.Client, nodes: Nodes, in_background: Start,
    eventually: Eventually,
) -> None:  # fmt: skip
    """So that a release wakes one waiter, however many there are."""
    first = lock.acquire()
    second = in_background(lambda: lock.acquire(timeout=20))
    eventually(lambda: len(nodes.contenders("a")) == 2, "the second stands in line")
    third = in_background(lambda: other.acquire(timeout=20))
    eventually(lambda: len(nodes.contenders("a")) == 3, "the third stands in line")
    eventually(
        lambda: set(other_zk._data_watchers) == set(nodes.contenders("a")[1:]), "it watches the second, not the first"
    )
    first.release()
    second.result().release()
    third.result().release()


def test_a_grant_after_a_long_wait_is_proved_by_a_write(
    lock: FencedLock, other: FencedLock, nodes: Nodes, faults: Faults, in_background: Start, eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Reads prove nothing: a server that is cut off goes on answering them after the session is over."""
    grant = lock.acquire()
    waiting = in_background(lambda: other.acquire(timeout=100))
    eventually(lambda: len(nodes.contenders("a")) == 2, "it stands in line")
    eventually(lambda: isinstance(faults.effects[-1], Wait), "it waits")
    now = other._session.now
    monkeypatch.setattr(other._session, "now", lambda: now() + other._session.session_timeout * 0.8)
    grant.release()
    waiting.result().release()
    last = [effect for effect in faults.effects if isinstance(effect, Flight)][-1]
    assert isinstance(last.operations[0], Multi)
    assert isinstance(last.operations[0].operations[0], Check)


def test_a_second_release_and_a_late_one_do_nothing(lock: FencedLock, other: FencedLock, nodes: Nodes) -> None:
    grant = lock.acquire()
    grant.release()
    with other:
        grant.release()
        assert len(nodes.contenders("a")) == 1


def test_leaving_the_with_block_of_a_lost_grant_releases_nobody_else(
    lock: FencedLock, other_zk: zkfence.Client, in_background: Start
) -> None:
    with lock as lost:
        other_zk.delete(lost.path)
        assert lost.lost.wait(1)
        entered: zkfence.Grant = in_background(lock.__enter__).result()
    entered.check()
    entered.release()


AWKWARD = ["a/b", "a//b", "..", ".", "é", "e\u0301", "🔒", "\0", "a\nb", "zookeeper", "x" * 255, "A", "a", " "]


def test_names_that_differ_as_text_are_different_locks(zk: zkfence.Client, zkfence_namespace: str) -> None:
    grants = [FencedLock(zk, name, namespace=zkfence_namespace).try_acquire() for name in AWKWARD]
    assert all(grant is not None for grant in grants)
    assert len({grant.path for grant in grants if grant}) == len(AWKWARD)
    for grant in grants:
        assert grant is not None
        grant.release()


@pytest.mark.parametrize("namespace", ["", "zkfence", "/", "/a/", "//a", "/a/../b", "/.", "/a\0", "/a\n", "/\ud800"])
def test_a_namespace_is_an_absolute_path(zk: zkfence.Client, namespace: str) -> None:
    with pytest.raises(InvalidName):
        FencedLock(zk, "a", namespace=namespace)


@pytest.mark.parametrize("name", ["", "x" * 256, None])
def test_bad_lock_names_are_refused_at_once(zk: zkfence.Client, name: Any) -> None:
    with pytest.raises(InvalidName):
        FencedLock(zk, name)


@pytest.mark.parametrize("client", ["127.0.0.1:2181", None])
def test_a_lock_without_a_client_is_refused_at_once(client: Any) -> None:
    with pytest.raises(TypeError, match="connect"):
        FencedLock(client, "a")


def test_bad_options_are_refused_at_once(zk: zkfence.Client, lock: FencedLock) -> None:
    with pytest.raises(ValueError, match="info is too long"):
        FencedLock(zk, "a", info="x" * 1024)
    with pytest.raises(ValueError, match="timeout"):
        lock.acquire(timeout=-1)
    with pytest.raises(ValueError, match="timeout"):
        lock.acquire(timeout=float("nan"))


def test_what_is_no_list_of_acls_is_refused_at_once(zk: zkfence.Client) -> None:
    """In a request it would end the connection of kazoo's own client; an empty one would pass for an open one."""
    one = make_acl("world", "anyone", all=True)
    for bad in (one, "world:anyone:cdrwa", [("world", "anyone")], [one, None], 31):
        with pytest.raises(TypeError, match="acl is a list"):
            FencedLock(zk, "a", acl=bad)  # type: ignore[arg-type]
    for empty in ([], ()):
        with pytest.raises(ValueError, match="acl is an empty list"):
            FencedLock(zk, "a", acl=empty)


@pytest.mark.parametrize("timeout", [0, 1e10, float("inf")])
def test_any_timeout_gets_a_free_lock(lock: FencedLock, timeout: float) -> None:
    lock.acquire(timeout=timeout).release()


def test_a_timeout_of_zero_tries_once(lock: FencedLock, other: FencedLock) -> None:
    with lock, pytest.raises(LockTimeout):
        other.acquire(timeout=0)


def test_a_client_that_was_never_started_is_told_of(zkfence_namespace: str) -> None:
    lock = FencedLock(zkfence.Client("127.0.0.1:1"), "a", namespace=zkfence_namespace)
    started = time.monotonic()
    with pytest.raises(NotConnected, match="start"):
        lock.acquire(timeout=2)
    assert time.monotonic() - started < 2


def test_a_closed_client_is_told_of_and_a_new_start_works(
    connect: Callable[..., zkfence.Client], zkfence_namespace: str
) -> None:
    client = connect()
    lock = FencedLock(client, "a", namespace=zkfence_namespace)
    grant = lock.acquire()
    client.stop()
    assert grant.lost.wait(1)
    grant.release()
    with pytest.raises(NotConnected, match="start"):
        lock.acquire(timeout=2)
    client.start()
    with lock.acquire(timeout=10) as again:
        assert again.token > grant.token


def test_a_client_that_is_closed_while_it_waits_ends_the_wait(
    lock: FencedLock, connect: Callable[..., zkfence.Client], zkfence_namespace: str, nodes: Nodes,
    in_background: Start, eventually: Eventually,
) -> None:  # fmt: skip
    client = connect()
    with lock as grant:
        waiting = in_background(lambda: FencedLock(client, "a", namespace=zkfence_namespace).acquire())
        eventually(lambda: len(nodes.contenders("a")) == 2, "it stands in line")
        client.stop()
        with pytest.raises(NotConnected):
            waiting.result(within=5)
        eventually(lambda: nodes.contenders("a") == [grant.path], "nothing stays behind")


class Interrupt(BaseException):
    pass


@pytest.mark.parametrize("after_sending", [False, True], ids=["before sending", "after sending"])
@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
def test_an_interrupt_at_any_point_leaves_no_node(
    lock: FencedLock, other: FencedLock, nodes: Nodes, faults: Faults, held: bool, after_sending: bool,
    in_background: Start, eventually: Eventually,
) -> None:  # fmt: skip
    other.acquire().release()
    faults.error, faults.after_sending = Interrupt(), after_sending
    interrupted = 0
    for point in itertools.count():
        faults.raise_at = None
        grant = other.acquire() if held else None
        faults.effects.clear()
        faults.raise_at = point
        waiting = in_background(lambda: lock.acquire(timeout=20))
        if held:
            # The wait for the holder is one of the points.
            eventually(
                lambda waiting=waiting: waiting.done or len(nodes.contenders("a")) == 2, "it is in line, or interrupted"
            )
            eventually(
                lambda waiting=waiting: waiting.done or type(faults.effects[-1]).__name__ == "Wait",
                "it waits, or is interrupted",
            )
            assert grant is not None
            grant.release()
        try:
            waiting.result().release()
        except Interrupt:
            interrupted += 1
        eventually(lambda: nodes.contenders("a") == [], f"nothing is left of the interrupt at {point}", within=1.0)
        if len(faults.effects) <= point:
            break
    assert interrupted >= (4 if held else 2)


def test_an_acl_that_forbids_is_told_of_and_nothing_is_made(zk: zkfence.Client, zkfence_namespace: str) -> None:
    zk.create(zkfence_namespace, b"", acl=[make_acl("world", "anyone", read=True)])
    with pytest.raises(zkfence.AccessDenied, match="ACL"):
        FencedLock(zk, "a", namespace=zkfence_namespace).acquire(timeout=5)
    assert zk.get_children(zkfence_namespace) == []


def test_a_client_that_may_create_and_not_read_leaves_nothing(
    lock: FencedLock, zk: zkfence.Client, nodes: Nodes, eventually: Eventually
) -> None:
    with lock as grant:
        counter = grant.path.rpartition("/")[0]
    zk.set_acls(counter, [make_acl("world", "anyone", create=True, delete=True, admin=True)])
    with pytest.raises(zkfence.AccessDenied):
        lock.acquire(timeout=5)
    zk.set_acls(counter, [make_acl("world", "anyone", all=True)])
    eventually(lambda: nodes.contenders("a") == [], "nothing stays behind", within=1.0)


def test_everything_that_is_made_carries_the_acl(zk: zkfence.Client, zkfence_namespace: str) -> None:
    zk.add_auth("digest", "user:secret")
    acl = [make_digest_acl("user", "secret", all=True)]
    lock = FencedLock(zk, "a", namespace=zkfence_namespace, acl=acl)
    with lock as grant:
        made = [zkfence_namespace, f"{zkfence_namespace}/epoch", f"{zkfence_namespace}/locks"]
        made += [grant.path, grant.path.rpartition("/")[0], f"{zkfence_namespace}/locks/a"]
        for path in made:
            assert zk.get_acls(path)[0] == acl, path
