"""Ending: quickly, whatever the servers do, and on the server too where that is possible."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kazoo.exceptions import ConnectionClosedError

import zkfence
from zkfence import NotConnected
from zkfence._connection import _client
from zkfence.testing import LocalEnsemble

Connect = Callable[..., zkfence.Client]

_AT_MOST = 4.0  # seconds; the promise is 5, of a session timeout of 30


@contextmanager
def quickly(at_most: float = _AT_MOST) -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < at_most


def started_on(hosts: str, **options: object) -> zkfence.Client:
    client = zkfence.Client(hosts, 30.0, connection_retry={"max_tries": -1, "max_delay": 5.0}, **options)
    client.start_async()
    return client


def thread_of(client: zkfence.Client) -> threading.Thread:
    thread = client._connection._connection_routine
    assert thread is not None
    return thread


def test_a_stop_ends_the_session_on_the_server(connect: Connect, zk: zkfence.Client, zkfence_namespace: str) -> None:
    client = connect(session_timeout=30.0)
    client.create(zkfence_namespace, ephemeral=True)
    thread = thread_of(client)
    with quickly(1.0):
        client.stop()
    assert zk.exists(zkfence_namespace) is None
    assert not thread.is_alive()
    with quickly(1.0):
        client.stop()
    client.close()
    client.close()
    client.start()  # and it can begin anew
    assert client.exists("/") is not None


def test_leaving_the_with_block_of_a_hung_server_is_quick(restless: LocalEnsemble) -> None:
    with quickly(), zkfence.connect(restless.hosts, session_timeout=30.0) as client:
        thread = thread_of(client)
        restless.nodes[0].pause()
        client.exists_async("/")
    assert not thread.is_alive()
    assert client._connection._write_sock is None


def test_a_stop_while_the_server_is_down_is_quick(
    restless: LocalEnsemble, connect: Connect, eventually: Callable[..., None]
) -> None:
    client = connect(restless.hosts, session_timeout=30.0)
    restless.nodes[0].kill()
    eventually(lambda: not client.connected, "the loss was noticed")
    thread = thread_of(client)
    with quickly():
        client.stop()
    assert not thread.is_alive()


def test_a_stop_while_a_server_is_being_connected_is_quick(mute: str, blackhole: str) -> None:
    for hosts in (mute, blackhole, f"{mute},{blackhole}"):
        client = started_on(hosts)
        thread = thread_of(client)
        time.sleep(0.1)
        with quickly():
            client.stop()
            client.close()
        assert not thread.is_alive()


def test_a_stop_in_a_tls_handshake_is_quick(mute: str) -> None:
    from zkfence._connection._tls import tls_context

    client = started_on(mute, tls=tls_context())
    thread = thread_of(client)
    time.sleep(0.1)
    with quickly():
        client.stop()
        client.close()
    assert not thread.is_alive()


def test_a_stop_while_a_host_name_is_looked_up_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    from kazoo.protocol import connection

    release = threading.Event()

    def look_up(*_: object) -> list[object]:
        release.wait(20)
        return []

    monkeypatch.setattr(connection.socket, "getaddrinfo", look_up)
    client = started_on("zk.example:2181")
    thread = thread_of(client)
    with quickly():
        client.stop()
        client.close()
    assert thread.is_alive()
    assert client._connection._write_sock is not None
    release.set()  # it closes what it has open when it can
    thread.join(10)
    assert client._connection._write_sock is None


def test_a_callback_that_blocks_does_not_hold_up_the_stop(
    connect: Connect, zk: zkfence.Client, zkfence_namespace: str
) -> None:
    client = connect()
    client.create(zkfence_namespace, ephemeral=True)
    called, release = threading.Event(), threading.Event()

    def block(_: object) -> None:
        called.set()
        release.wait(20)

    client.get_async(zkfence_namespace).rawlink(block)
    assert called.wait(10)
    try:
        with quickly():
            client.stop()
        assert zk.exists(zkfence_namespace) is None
    finally:
        release.set()


def test_a_state_listener_may_stop_the_client(
    connect: Connect, restless: LocalEnsemble, eventually: Callable[..., None]
) -> None:
    client = connect(restless.hosts)
    thread = thread_of(client)
    client.add_listener(lambda state: client.stop())
    restless.nodes[0].kill()
    eventually(lambda: not thread.is_alive(), "the thread has ended")


@pytest.mark.parametrize("kind", ["mute", "blackhole"])
def test_connecting_keeps_its_timeout_whatever_the_server_does(kind: str, request: pytest.FixtureRequest) -> None:
    hosts = request.getfixturevalue(kind)
    threads = threading.active_count()
    with quickly(1.5), pytest.raises(NotConnected, match=f"within 0.5 s. The last try: {hosts} said nothing"):
        zkfence.connect(hosts, session_timeout=30.0, connect_timeout=0.5)
    assert threading.active_count() == threads


def test_an_interrupt_while_connecting_leaves_no_client_behind(
    mute: str, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]
) -> None:
    threads = threading.active_count()

    def interrupted(self: object, timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    real = zkfence.Client.start_async

    def start_async(self: zkfence.Client) -> object:
        real(self)
        return type("Interrupted", (), {"wait": interrupted})()

    monkeypatch.setattr(zkfence.Client, "start_async", start_async)
    with pytest.raises(KeyboardInterrupt):
        zkfence.connect(mute)
    eventually(lambda: threading.active_count() == threads, "no thread is left")


LEAVING = """
import sys, zkfence
zk = zkfence.connect(sys.argv[1], session_timeout=30.0)
zk.create(sys.argv[2], ephemeral=True)
print("ready", flush=True)
if sys.argv[3] == "with":
    with zk:
        sys.stdin.readline()
else:
    sys.stdin.readline()
"""


def leaving(hosts: str, path: str, how: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", LEAVING, hosts, path, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_process_that_ends_without_a_stop_ends_its_session(
    zkfence_ensemble: LocalEnsemble, zk: zkfence.Client, zkfence_namespace: str
) -> None:
    with leaving(zkfence_ensemble.hosts, zkfence_namespace, "plain") as process:
        assert zk.exists(zkfence_namespace) is not None
        with quickly():
            process.communicate("\n", timeout=20)
    assert process.returncode == 0
    assert zk.exists(zkfence_namespace) is None


@pytest.mark.parametrize("how", ["with", "plain"])
def test_a_process_ends_quickly_though_the_server_hangs(
    restless: LocalEnsemble, zkfence_namespace: str, how: str
) -> None:
    with leaving(restless.hosts, zkfence_namespace, how) as process:
        restless.nodes[0].pause()
        with quickly():
            process.communicate("\n", timeout=40)
    assert process.returncode == 0


def test_a_request_that_a_stop_overtakes_is_answered_and_not_sent_later(
    connect: Connect, zk: zkfence.Client, zkfence_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread may be held up between its look at the client's state and its entry in the queue."""
    client = connect()

    class HeldUp(dict[str, Any]):
        def get(self, state: str, default: Any = None) -> Any:
            refusal = super().get(state, default)
            client.stop()
            return refusal

    with monkeypatch.context() as patch:
        patch.setattr(_client, "_REFUSALS", HeldUp(_client._REFUSALS))
        answer = client.create_async(zkfence_namespace)
    with pytest.raises(ConnectionClosedError):
        answer.get(timeout=5)
    client.start()
    client.exists("/")
    assert zk.exists(zkfence_namespace) is None
