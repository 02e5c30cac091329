"""The loop between connecting and the end, against real servers."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import (
    EXCEPTIONS,
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    NoAuthError,
    NodeExistsError,
    SessionExpiredError,
)
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent
from kazoo.security import CREATOR_ALL_ACL

import zkfence
from zkfence._connection._loop import Connection
from zkfence.testing import LocalEnsemble

from .conftest import Proxy

Connect = Callable[..., zkfence.Client]


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir())) if sys.platform == "linux" else 0


def work(client: KazooClient, root: str, rounds: int) -> None:
    """A bit of everything, each answer checked."""
    client.ensure_path(root)
    for number in range(rounds):
        created = client.create_async(f"{root}/x-", b"d" * number, ephemeral=True, sequence=True, include_data=True)
        children = client.get_children_async(root, include_data=True)
        path, stat = created.get(timeout=20)
        assert stat.dataLength == number
        assert path.rpartition("/")[2] in children.get(timeout=20)[0]
        assert client.get(path)[0] == b"d" * number
        with pytest.raises(NodeExistsError):
            client.create(path)
        transaction = client.transaction()
        transaction.check(path, 0)
        transaction.delete(path)
        assert transaction.commit() == [True, True]
        assert client.exists(path) is None
        assert client.sync(root) == root


def test_every_kind_of_request_is_answered_to_many_threads(zk: zkfence.Client, zkfence_namespace: str) -> None:
    assert isinstance(zk._connection, Connection)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(zk, f"{zkfence_namespace}-{number}", 20)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_a_connection_that_sleeps_is_woken_by_each_request(zk: zkfence.Client) -> None:
    for _ in range(10):
        time.sleep(0.03)
        assert zk.exists_async("/").get(timeout=2) is not None


@pytest.mark.parametrize("piece", [1, 7])
def test_answers_may_come_in_pieces_of_any_size(
    proxy: Proxy, connect: Connect, zkfence_namespace: str, piece: int
) -> None:
    proxy.piece = piece
    work(connect(proxy.hosts), zkfence_namespace, 3)


def test_a_connection_that_ends_in_the_middle_of_an_answer_is_made_anew(
    proxy: Proxy, connect: Connect, zkfence_namespace: str
) -> None:
    client = connect(proxy.hosts)
    session = client.client_id
    client.create(zkfence_namespace, b"d" * 100)
    for cut in (1, 4, 10, 21, 60):
        proxy.cut_after = cut
        with pytest.raises(ConnectionLoss):
            client.get(zkfence_namespace)
        assert client.retry(client.get, zkfence_namespace)[0] == b"d" * 100
    assert client.client_id == session


def test_large_answers_and_large_requests(zk: zkfence.Client, zkfence_namespace: str) -> None:
    zk.create(zkfence_namespace)
    data = os.urandom(1_000_000)
    paths = [f"{zkfence_namespace}/{number}" for number in range(8)]
    for answer in [zk.create_async(path, data) for path in paths]:
        answer.get(timeout=30)
    assert all(answer.get(timeout=30)[0] == data for answer in [zk.get_async(path) for path in paths])


def test_ten_thousand_requests_leave_nothing_behind(zk: zkfence.Client, zkfence_namespace: str) -> None:
    zk.create(zkfence_namespace)
    threads, open_files = threading.active_count(), descriptors()
    seen: list[WatchedEvent] = []
    for _ in range(5):
        answers = [zk.get_async(zkfence_namespace, watch=seen.append) for _ in range(2000)]
        assert all(answer.get(timeout=30)[0] == b"" for answer in answers)
    assert (threading.active_count(), descriptors()) == (threads, open_files)
    assert not zk._queue
    assert not zk._pending
    assert sum(map(len, zk._data_watchers.values())) == 1
    assert len(zk._connection._read_sock._rings) <= 1


def test_many_watches_fire_once_each(
    zk: zkfence.Client, connect: Connect, zkfence_namespace: str, eventually: Callable[..., None]
) -> None:
    zk.create(zkfence_namespace)
    paths = [f"{zkfence_namespace}/{number}" for number in range(1000)]
    for answer in [zk.create_async(path) for path in paths]:
        answer.get(timeout=30)
    seen: list[WatchedEvent] = []
    for answer in [zk.get_async(path, watch=seen.append) for path in paths]:
        answer.get(timeout=30)
    other = connect()
    for deletion in [other.delete_async(path) for path in paths]:
        deletion.get(timeout=30)
    eventually(lambda: len(seen) >= 1000, "every watch has fired")
    assert sorted(event.path or "" for event in seen) == sorted(paths)
    assert {event.type for event in seen} == {EventType.DELETED}
    assert not any(zk._data_watchers.values())


def test_a_request_that_cannot_be_sent_fails_alone(zk: zkfence.Client, zkfence_namespace: str) -> None:
    class Nonsense:
        type = 4

        def serialize(self) -> bytes:
            raise LookupError("nonsense")

    result = zk.handler.async_result()
    zk._call(Nonsense(), result)
    with pytest.raises(LookupError, match="nonsense"):
        result.get(timeout=10)
    assert zk.exists(zkfence_namespace) is None


def test_an_error_that_kazoo_does_not_know_costs_the_connection_and_not_the_client(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, zkfence_namespace: str
) -> None:
    zk = connect()

    def unknown() -> Exception:
        raise RuntimeError("Invalid error code")

    session = zk.client_id
    with monkeypatch.context() as patch:
        patch.setitem(EXCEPTIONS, -101, unknown)
        with pytest.raises(RuntimeError, match="Invalid error code"):
            zk.get(zkfence_namespace)
    assert zk.retry(zk.exists, zkfence_namespace) is None
    assert zk.client_id == session


def test_transaction_ids_go_on_behind_the_largest(zk: zkfence.Client, zkfence_namespace: str) -> None:
    zk._connection._xid = 2**31 - 3
    for _ in range(6):
        assert zk.exists(zkfence_namespace) is None
    assert zk._connection._xid == 4


def test_an_idle_session_is_kept_alive(connect: Connect, zkfence_namespace: str) -> None:
    client = connect(session_timeout=1.2)
    session = client.client_id
    time.sleep(2)
    assert client.exists(zkfence_namespace) is None
    assert client.client_id == session


def test_a_session_without_requests_of_its_own_is_kept_alive_while_events_come(
    connect: Connect, zkfence_namespace: str
) -> None:
    client, other = connect(session_timeout=1.2), connect()
    session = client.client_id
    other.create(zkfence_namespace)
    paths = [f"{zkfence_namespace}/{number}" for number in range(120)]
    for path in paths:
        other.create(path)
    for answer in [client.get_async(path, watch=lambda event: None) for path in paths]:
        answer.get(timeout=10)
    for path in paths:  # an event each 15 ms or more
        other.delete(path)
        time.sleep(0.015)
    assert client.exists("/") is not None
    assert client.client_id == session


def test_a_server_that_hangs_is_given_up_though_requests_go_on(
    restless: LocalEnsemble, connect: Connect, eventually: Callable[..., None]
) -> None:
    client = connect(restless.hosts, session_timeout=3.0)
    restless.nodes[0].pause()
    started = time.monotonic()
    answers = []
    while client.connected and time.monotonic() < started + 10:
        answers.append(client.exists_async("/"))
        time.sleep(0.05)
    assert time.monotonic() - started < 3.0
    with pytest.raises(ConnectionLoss):
        answers[0].get(timeout=1)
    restless.nodes[0].resume()
    assert client.retry(client.exists, "/") is not None


def test_more_requests_than_kazoos_queue_takes_can_wait_for_the_connection(
    restless: LocalEnsemble, connect: Connect, eventually: Callable[..., None]
) -> None:
    client = connect(restless.hosts, session_timeout=20.0)
    restless.nodes[0].kill()
    eventually(lambda: not client.connected, "the loss was noticed")
    answers = [client.exists_async("/") for _ in range(3000)]
    restless.nodes[0].restart()
    eventually(lambda: all(answer.ready() for answer in answers), "every request has an answer", within=20)
    for answer in answers:
        with contextlib.suppress(ConnectionLoss):
            assert answer.get() is not None


def test_a_session_that_has_expired_is_told_and_replaced(
    zk: zkfence.Client, zkfence_ensemble: LocalEnsemble, eventually: Callable[..., None]
) -> None:
    states: list[str] = []
    zk.add_listener(states.append)
    assert zk.client_id is not None
    session = zk.client_id[0]
    twin = KazooClient(zkfence_ensemble.hosts, client_id=zk.client_id)
    twin.start()
    twin.stop()
    twin.close()
    eventually(lambda: states == [KazooState.SUSPENDED, KazooState.LOST, KazooState.CONNECTED], "a new session")
    assert zk.client_id is not None
    assert zk.client_id[0] != session


def test_kazoos_own_way_of_testing_an_expiry_works(zk: zkfence.Client, eventually: Callable[..., None]) -> None:
    from kazoo.protocol.connection import _CONNECTION_DROP, _SESSION_EXPIRED

    states: list[str] = []
    zk.add_listener(states.append)
    zk._call(_CONNECTION_DROP, None)
    eventually(lambda: states == [KazooState.SUSPENDED, KazooState.CONNECTED], "a new connection")
    answer = zk.handler.async_result()
    zk._call(_SESSION_EXPIRED, answer)
    with pytest.raises(SessionExpiredError):
        answer.get(timeout=10)
    eventually(lambda: states[2:] == [KazooState.LOST, KazooState.CONNECTED], "a new session")


def test_credentials_of_a_running_client_are_used(connect: Connect, zk: zkfence.Client, zkfence_namespace: str) -> None:
    owner = connect()
    assert owner.add_auth("digest", "anna:secret") is True
    owner.create(zkfence_namespace, acl=CREATOR_ALL_ACL)
    with pytest.raises(NoAuthError):
        zk.get(zkfence_namespace)
    assert connect(auth=[("digest", "anna:secret")]).get(zkfence_namespace)[0] == b""


def test_credentials_that_are_refused_end_the_client(
    zk: zkfence.Client, eventually: Callable[..., None], zkfence_namespace: str
) -> None:
    with pytest.raises(AuthFailedError):
        zk.add_auth("nonsense", "x")
    eventually(lambda: zk.client_state == KeeperState.CLOSED, "the client is closed")
    with pytest.raises(ConnectionClosedError):
        zk.exists(zkfence_namespace)


@pytest.mark.parametrize("level", [logging.DEBUG, 1])
def test_requests_are_logged_when_that_is_wanted(
    connect: Connect, caplog: pytest.LogCaptureFixture, level: int, zkfence_namespace: str
) -> None:
    caplog.set_level(level, "kazoo.client")
    connect().exists(zkfence_namespace)
    assert f"Exists(path='{zkfence_namespace}'" in caplog.text


@pytest.mark.parametrize("request_", ["exists", "create", "sync"])
def test_a_users_callback_that_blocks_holds_nothing_up(
    zk: zkfence.Client, zkfence_namespace: str, request_: str
) -> None:
    release = threading.Event()
    called = threading.Event()

    def block(_: Any) -> None:
        called.set()
        release.wait(10)

    try:
        getattr(zk, f"{request_}_async")(f"{zkfence_namespace}-other").rawlink(block)
        assert called.wait(10)
        started = time.monotonic()
        zk.create(zkfence_namespace)
        assert zk.sync(zkfence_namespace) == zkfence_namespace
        assert time.monotonic() - started < 5
    finally:
        release.set()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers")
def test_a_storm_of_signals_leaves_the_client_behind_by_no_request(
    zk: zkfence.Client, zkfence_namespace: str, eventually: Callable[..., None]
) -> None:
    class Interrupted(BaseException):
        pass

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    states: list[str] = []
    zk.add_listener(states.append)
    zk.create(zkfence_namespace)
    interrupted = 0
    before = signal.signal(signal.SIGALRM, interrupt)
    deadline = time.monotonic() + 2
    try:
        while time.monotonic() < deadline:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0002 + 0.001 * (interrupted % 17) / 17)
                while True:
                    zk.get_async(zkfence_namespace).get(timeout=10)
            except Interrupted:
                interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 100
    started = time.monotonic()
    for _ in range(20):
        assert zk.get(zkfence_namespace)[0] == b""
    assert time.monotonic() - started < 2
    assert not zk._queue
    assert not zk._pending
    assert not states


CHILD = """
import os, sys, time
import zkfence
from kazoo.exceptions import ConnectionClosedError

with zkfence.connect(sys.argv[1]) as zk:
    zk.create(sys.argv[2], ephemeral=True)
    session = zk.client_id
    pid = os.fork()
    if not pid:
        try:
            zk.get("/")
        except ConnectionClosedError:
            pass
        else:
            os._exit(3)
        zk.stop()
        zk.close()
        zk.start()
        assert zk.client_id[0] != session[0]
        assert zk.exists(sys.argv[2]).ephemeralOwner == session[0]
        zk.create(sys.argv[2] + "-child", ephemeral=True)
        sys.exit(0)  # with all hooks, as a process ends
    assert os.waitpid(pid, 0)[1] == 0
    assert zk.exists(sys.argv[2]).ephemeralOwner == zk.client_id[0] == session[0]
    assert zk.exists(sys.argv[2] + "-child") is None  # the child's own session has ended with the child
    print("fine")
"""


def test_a_forked_child_has_no_part_in_the_session(zkfence_ensemble: LocalEnsemble, zkfence_namespace: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, zkfence_ensemble.hosts, zkfence_namespace],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
