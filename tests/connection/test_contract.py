"""What the loop relies on in kazoo."""

from __future__ import annotations

import kazoo
import pytest
from kazoo.client import KazooClient
from kazoo.protocol import connection
from kazoo.protocol.connection import ConnectionHandler

from zkfence._connection._contract import KNOWN_VERSIONS, breaches


def test_the_kazoo_that_is_installed_keeps_it() -> None:
    assert breaches(KazooClient()) == []


def test_the_versions_that_were_read() -> None:
    assert KNOWN_VERSIONS == ("2.10", "2.11")


@pytest.mark.parametrize("version", ["2.12.0", "2.1", "2.9.0", "2.110.0", "3.0"])
def test_another_version_is_unknown(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(kazoo, "__version__", version)
    assert breaches(KazooClient()) == [f"version {version} is none of 2.10, 2.11"]


@pytest.mark.parametrize("version", ["2.10.0", "2.11", "2.11.3"])
def test_a_known_version(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(kazoo, "__version__", version)
    assert breaches(KazooClient()) == []


def test_a_method_with_other_parameters_is_a_breach(monkeypatch: pytest.MonkeyPatch) -> None:
    client = KazooClient()
    monkeypatch.setattr(ConnectionHandler, "_read_socket", lambda self, timeout: None)
    monkeypatch.delattr(ConnectionHandler, "_send_ping")
    monkeypatch.delattr(connection, "AUTH_XID")
    del client._queue
    assert breaches(client) == [
        "ConnectionHandler._read_socket(read_timeout)",
        "ConnectionHandler._send_ping(connect_timeout)",
        "connection.AUTH_XID",
        "KazooClient()._queue",
    ]


def test_kazoos_loop_asks_select_first_and_reads_then() -> None:
    """`Connection` is called in the first round of kazoo's loop, because its channel says that there is something to
    read, and never comes back to it before the session is closed."""
    names = ConnectionHandler._connect_attempt.__code__.co_names
    order = ["_connect", "reset", "select", "_read_socket", "CLOSE_RESPONSE", "_send_request", "_send_ping"]
    assert [name for name in names if name in order] == order
