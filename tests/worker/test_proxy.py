"""The network of the other tests fails in the way that it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

import zkfence
from zkfence.testing import LocalEnsemble

from .proxy import CREATE, GET_DATA, Proxy, of

Eventually = Callable[..., None]


@pytest.fixture
def proxy(zkfence_ensemble: LocalEnsemble) -> Iterator[Proxy]:
    with Proxy(zkfence_ensemble.nodes[0].address) as proxy:
        yield proxy


@pytest.fixture
def behind(proxy: Proxy) -> Iterator[zkfence.Client]:
    with zkfence.connect(proxy.address) as client:
        yield client
        proxy.heal()


def test_a_lost_reply_is_of_a_request_that_was_applied(
    proxy: Proxy, behind: KazooClient, zk: KazooClient, zkfence_namespace: str
) -> None:
    then: list[object] = []
    strike = proxy.lose_reply(of(CREATE, naming=zkfence_namespace), then=lambda: then.append(1))
    with pytest.raises(ConnectionLoss):
        behind.create(zkfence_namespace)
    assert strike.done.is_set()
    assert then == [1]
    assert zk.exists(zkfence_namespace)
    behind.retry(behind.create, f"{zkfence_namespace}/once")  # a fault strikes once


def test_a_lost_request_was_not_applied(
    proxy: Proxy, behind: KazooClient, zk: KazooClient, zkfence_namespace: str
) -> None:
    strike = proxy.lose_request(of(CREATE, naming=zkfence_namespace))
    behind.get("/")  # another one
    assert not strike.done.is_set()
    with pytest.raises(ConnectionLoss):
        behind.create(zkfence_namespace)
    assert strike.done.is_set()
    assert zk.exists(zkfence_namespace) is None


def test_a_held_reply_comes_late_and_so_does_what_is_behind_it(
    proxy: Proxy, behind: KazooClient, zk: KazooClient, zkfence_namespace: str
) -> None:
    strike = proxy.hold_reply(of(CREATE))
    created, read = behind.create_async(zkfence_namespace), behind.get_async("/")
    assert strike.done.wait(5)
    assert zk.exists(zkfence_namespace)
    assert not created.ready()
    assert not read.ready()
    proxy.heal()
    assert created.get(timeout=5) == zkfence_namespace
    read.get(timeout=5)


def test_what_goes_in_while_it_is_deaf_comes_out_later(
    proxy: Proxy, behind: KazooClient, zk: KazooClient, zkfence_namespace: str, eventually: Eventually
) -> None:
    proxy.go_deaf()
    created = behind.create_async(zkfence_namespace)
    eventually(lambda: proxy.requests[CREATE] == 1, "it is under way")
    assert zk.exists(zkfence_namespace) is None
    assert not created.ready()
    proxy.heal()
    assert created.get(timeout=5) == zkfence_namespace


def test_a_refused_client_comes_back_when_it_may(proxy: Proxy, behind: KazooClient, eventually: Eventually) -> None:
    session = behind.client_id
    proxy.refuse()
    eventually(lambda: not behind.connected, "it has noticed")
    proxy.heal()
    eventually(lambda: behind.connected, "it is back")
    assert behind.client_id == session
    proxy.cut()
    eventually(lambda: behind.connected, "it is back again")


def test_requests_and_bytes_are_counted(proxy: Proxy, behind: KazooClient) -> None:
    requests, received = proxy.requests[GET_DATA], proxy.bytes_to_client
    sent = proxy.bytes_to_server
    behind.get("/")
    assert proxy.requests[GET_DATA] == requests + 1
    assert proxy.bytes_to_server >= sent + 4 + 8 + 6  # frame, header, path and watch
    assert proxy.bytes_to_client >= received + 4 + 16 + 4 + 68  # frame, header, data and stat
