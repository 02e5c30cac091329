"""The session timeout that the servers have agreed to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.connection import _CONNECTION_DROP

import zkfence
from zkfence._connection._negotiation import negotiated_timeout_of
from zkfence.testing import LocalEnsemble

Connect = Callable[..., zkfence.Client]


@pytest.fixture
def stock(zkfence_ensemble: LocalEnsemble) -> Iterator[KazooClient]:
    client = KazooClient(zkfence_ensemble.hosts, timeout=7.0)
    yield client
    client.stop()
    client.close()


@pytest.mark.parametrize(("wish", "answer"), [(0.05, 0.4), (7.3, 7.3), (1000.0, 60.0)])
def test_it_is_what_the_server_says(
    connect: Connect, wish: float, answer: float, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect(session_timeout=wish)
    assert client.negotiated_timeout == answer == negotiated_timeout_of(client)
    warnings = [record.getMessage() for record in caplog.records if record.name == "zkfence"]
    if wish == answer:
        assert not warnings
    else:
        assert len(warnings) == 1
        assert f"the session timeout {answer:g} s instead of {wish:g} s" in warnings[0]


def test_it_is_told_before_anybody_hears_that_the_client_is_connected(zkfence_ensemble: LocalEnsemble) -> None:
    client = zkfence.Client(zkfence_ensemble.hosts, 500.0)
    assert client.negotiated_timeout is None
    seen: list[float | None] = []
    client.add_listener(lambda state: seen.append(client.negotiated_timeout))
    with client:
        client.start()
        assert seen == [60.0]


def test_it_follows_the_servers_and_warns_once_for_each_value(
    connect: Connect,
    restless: LocalEnsemble,
    caplog: pytest.LogCaptureFixture,
    request: pytest.FixtureRequest,
    eventually: Callable[..., None],
) -> None:
    caplog.set_level(logging.WARNING, "zkfence")
    client = connect(restless.hosts, session_timeout=90.0)
    assert client.negotiated_timeout == 60.0
    settings = restless.nodes[0].folder / "zoo.cfg"
    original = settings.read_text()
    request.addfinalizer(lambda: settings.write_text(original))
    settings.write_text(original.replace("maxSessionTimeout=60000", "maxSessionTimeout=45000"))
    restless.nodes[0].restart()
    eventually(lambda: client.connected and client.negotiated_timeout == 45.0, "connected again", within=20)
    client._call(_CONNECTION_DROP, None)
    client.retry(client.exists, "/")
    restless.nodes[0].kill()
    told = [record.getMessage() for record in caplog.records if record.name == "zkfence"]
    assert ["60 s" in told[0], "45 s" in told[1], len(told)] == [True, True, 2]


def test_a_stock_client_that_is_not_started_has_none(stock: KazooClient) -> None:
    assert negotiated_timeout_of(stock) is None
    stock.start()
    assert negotiated_timeout_of(stock) == 7.0


def test_a_stock_client_that_is_connected_already_is_asked_without_a_word_to_the_server(stock: KazooClient) -> None:
    stock.start()
    stock.exists("/")
    assert negotiated_timeout_of(stock) == 7.0


def test_a_stock_client_tells_it_at_the_next_connect_at_the_latest(
    stock: KazooClient, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]
) -> None:
    from zkfence._connection import _negotiation

    monkeypatch.setattr(_negotiation, "_from_loop", lambda connection: None)
    stock.start()
    assert negotiated_timeout_of(stock) is None
    stock._call(_CONNECTION_DROP, None)
    eventually(lambda: negotiated_timeout_of(stock) == 7.0, "it was connected again")
