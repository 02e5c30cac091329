"""What kazoo's public extension point can do, for a kazoo that zkfence does not know: its own loop, on our handler."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable

import pytest
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.states import Callback

import zkfence
from zkfence._connection import _client, _contract
from zkfence._connection._handler import Handler
from zkfence._connection._loop import Connection
from zkfence._connection._quick import is_quick, quick
from zkfence._session import Session
from zkfence.testing import LocalEnsemble

from .conftest import Proxy

Connect = Callable[..., zkfence.Client]


@pytest.fixture(autouse=True)
def unknown_kazoo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_contract.kazoo, "__version__", "2.99.0")
    monkeypatch.setattr(_client, "_warned", False)


def work(client: zkfence.Client, root: str, rounds: int) -> None:
    client.ensure_path(root)
    for number in range(rounds):
        created = client.create_async(f"{root}/x-", b"d" * number, ephemeral=True, sequence=True)
        children = client.get_children_async(root)
        path = created.get(timeout=20)
        assert path.rpartition("/")[2] in children.get(timeout=20)
        assert client.get(path)[0] == b"d" * number
        client.delete(path)
        assert client.exists(path) is None


def test_an_unknown_kazoo_keeps_its_loop_and_is_told_once(
    connect: Connect, caplog: pytest.LogCaptureFixture, zkfence_namespace: str
) -> None:
    caplog.set_level(logging.WARNING, "zkfence")
    clients = [connect(session_timeout=7.0), connect(session_timeout=7.0)]
    assert not any(isinstance(client._connection, Connection) for client in clients)
    assert [record.getMessage() for record in caplog.records if "2.99.0 is none of 2.10, 2.11" in record.getMessage()]
    assert len(caplog.records) == 1
    assert clients[0].negotiated_timeout == 7.0
    work(clients[0], zkfence_namespace, 3)


def test_many_threads(connect: Connect, zkfence_namespace: str) -> None:
    client = connect()
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(client, f"{zkfence_namespace}-{number}", 15)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert not client._connection._read_sock._rings


def test_answers_in_pieces_and_connections_that_end(proxy: Proxy, connect: Connect, zkfence_namespace: str) -> None:
    client = connect(proxy.hosts)
    proxy.piece = 3
    work(client, zkfence_namespace, 3)
    proxy.cut_after = 10
    with pytest.raises(ConnectionLoss):
        client.get(zkfence_namespace)
    assert client.retry(client.get, zkfence_namespace)[0] == b""


def test_a_large_answer(connect: Connect, zkfence_namespace: str) -> None:
    client = connect()
    data = bytes(1_000_000)
    client.create(zkfence_namespace, data)
    assert client.get(zkfence_namespace)[0] == data


def test_an_idle_session_is_kept_alive(connect: Connect) -> None:
    client = connect(session_timeout=1.2)
    session = client.client_id
    time.sleep(2)
    assert client.exists("/") is not None
    assert client.client_id == session


def test_requests_without_number_may_wait_and_a_stop_is_quick(
    restless: LocalEnsemble, connect: Connect, eventually: Callable[..., None]
) -> None:
    client = connect(restless.hosts, session_timeout=30.0)
    restless.nodes[0].pause()
    answers = [client.exists_async("/") for _ in range(3000)]
    restless.nodes[0].resume()
    for answer in answers:
        with contextlib.suppress(ConnectionLoss):
            answer.get(timeout=10)
    restless.nodes[0].pause()
    client.exists_async("/")
    thread = client._connection._connection_routine
    assert thread is not None
    started = time.monotonic()
    client.stop()
    assert time.monotonic() - started < 4
    assert not thread.is_alive()


def test_select_of_anything_else_is_kazoos() -> None:
    handler = Handler()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert handler.select([ours], [], [], 0) == ([], [], [])
        theirs.send(b"x")
        assert handler.select([ours], [], [], 10) == ([ours], [], [])
        assert handler.select([], [ours], [], 10) == ([], [ours], [])


def test_what_never_blocks_is_told_at_once_and_what_may_block_in_a_thread_of_its_own() -> None:
    handler = Handler()
    handler.start()
    told: list[int] = []
    slowly = threading.Event()

    @quick
    def at_once(fails: bool) -> None:
        told.append(threading.get_ident())
        if fails:
            raise ValueError

    def slow() -> None:
        told.append(threading.get_ident())
        slowly.set()

    try:
        handler.dispatch_callback(Callback("watch", at_once, (False,)))
        handler.dispatch_callback(Callback("watch", at_once, (True,)))  # it is logged, and the connection goes on
        assert told == [threading.get_ident()] * 2
        handler.dispatch_callback(Callback("watch", slow, ()))
        assert slowly.wait(5)
        assert told[2] != threading.get_ident()
    finally:
        handler.stop()
    assert is_quick(Session._watch), "so that no answer overtakes the event that came before it"
