"""connect: what it takes, what it refuses, and what it keeps to itself."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.protocol.serialization import SASL, Auth, Connect
from kazoo.security import CREATOR_ALL_ACL

import zkfence
from zkfence import NotConnected
from zkfence._connection._discretion import DiscreetLogger
from zkfence._connection._hosts import check_hosts

from .conftest import Proxy


@pytest.mark.parametrize(
    "hosts",
    [
        *(
            "",
            " ",
            "/",
            "/chroot",
            ",",
            "zk1,",
            "zk1,,zk2",
            ":2181",
            "zk1:",
            "zk1:port",
            "zk1:0",
            "zk1:65536",
            "zk1:-1",
        ),
        *("::1", "[::1", "[::1]:x", "zk 1:2181", "user@zk1", "zk1?x", "zk1#x", "zk1/a/../b", "zk1/./a", "zk1:21 81"),
    ],
)
def test_hosts_that_cannot_mean_anything_are_refused_at_once(hosts: str) -> None:
    with pytest.raises(ValueError, match="hosts="):
        zkfence.connect(hosts)


@pytest.mark.parametrize(
    "hosts", ["zk1", "zk1:2181", "zk1:1,zk2:65535", "zk1, zk2", "127.0.0.1:2181/a/b", "[::1]:2181", "[fe80::1],zk/a"]
)
def test_hosts_that_can(hosts: str) -> None:
    check_hosts(hosts)


@pytest.mark.parametrize("hosts", [None, 2181, b"zk1:2181", ["zk1:2181"]])
def test_hosts_are_a_text(hosts: Any) -> None:
    with pytest.raises(TypeError, match="hosts is a text"):
        zkfence.connect(hosts)


@pytest.mark.parametrize("name", ["session_timeout", "connect_timeout"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, 1e300])
def test_a_timeout_is_positive_and_finite(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} is in seconds"):
        zkfence.connect("zk1", **{name: value})


@pytest.mark.parametrize("name", ["session_timeout", "connect_timeout"])
@pytest.mark.parametrize("value", ["10", None, True, [1]])
def test_a_timeout_is_a_number(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"{name} is in seconds"):
        zkfence.connect("zk1", **{name: value})


@pytest.mark.parametrize(
    ("theirs", "ours"), [("use_ssl", "tls"), ("verify_certs", "verify"), ("auth_data", "auth"), ("timeout", "session_")]
)
def test_kazoos_names_are_answered_with_ours(theirs: str, ours: str) -> None:
    with pytest.raises(TypeError, match=f"calls it {ours}"):
        zkfence.connect("zk1", **{theirs: 1})


def test_an_option_that_nobody_knows_and_a_handler_are_refused() -> None:
    with pytest.raises(TypeError, match="nonsense"):
        zkfence.connect("zk1", nonsense=1)
    with pytest.raises(TypeError, match="handler"):
        zkfence.connect("zk1", handler=object())


@pytest.mark.parametrize("auth", ["digest", ["ab"], [("digest",)], [("digest", b"anna:geheim")], 7, [("digest", 1)]])
def test_credentials_of_the_wrong_kind_are_refused_and_not_told(auth: Any) -> None:
    with pytest.raises(TypeError, match="auth is a list of pairs") as caught:
        zkfence.connect("zk1", auth=auth)
    assert "geheim" not in str(caught.value)


def test_nobody_there_is_told_with_the_cause() -> None:
    with pytest.raises(NotConnected, match=r"127\.0\.0\.1:1: .*refused"):
        zkfence.connect("127.0.0.1:1", connect_timeout=0.3)


def test_a_name_that_does_not_exist_is_told() -> None:
    with pytest.raises(NotConnected, match=r"no ZooKeeper server answered at nowhere\.invalid"):
        zkfence.connect("nowhere.invalid", connect_timeout=0.3)


def test_an_ipv6_address(proxy6: Proxy, connect: Callable[..., zkfence.Client], zkfence_namespace: str) -> None:
    client = connect(f"[::1]:{proxy6.port}")
    client.create(zkfence_namespace)
    assert client.command(b"ruok") == "imok"


def test_a_chroot(zk: zkfence.Client, connect: Callable[..., zkfence.Client], zkfence_namespace: str) -> None:
    hosts = ",".join(f"{host}:{port}" for host, port in zk.hosts) + zkfence_namespace
    with pytest.warns(UserWarning, match="the chroot does not exist"):
        connect(hosts)
    zk.create(zkfence_namespace)
    with warnings.catch_warnings(action="error"):
        client = connect(hosts)
    client.create("/a")
    events: list[str | None] = []
    client.get("/a", watch=lambda event: events.append(event.path))
    transaction = client.transaction()
    transaction.create("/a/b")
    assert transaction.commit() == ["/a/b"]
    assert zk.exists(f"{zkfence_namespace}/a/b") is not None


def test_secrets_are_never_logged(
    connect: Callable[..., zkfence.Client],
    zkfence_namespace: str,
    caplog: pytest.LogCaptureFixture,
    eventually: Callable[..., None],
) -> None:
    from kazoo.protocol.connection import _CONNECTION_DROP

    caplog.set_level(1)
    client = connect(auth=[("digest", "anna:geheim")])
    client.create(zkfence_namespace, acl=CREATOR_ALL_ACL)
    assert client.add_auth("digest", "bert:auchgeheim") is True
    assert client.client_id is not None
    password = client.client_id[1]
    states: list[str] = []
    client.add_listener(states.append)
    client._call(_CONNECTION_DROP, None)  # now the session is taken up with its password
    eventually(lambda: "CONNECTED" in states, "connected again")
    assert client.get(zkfence_namespace)[0] == b""
    assert "Sending request" in caplog.text
    for secret in ("geheim", password.hex(), repr(password)[2:-1]):
        assert secret not in caplog.text
        assert secret not in repr(client)


def test_the_log_keeps_the_place_and_hides_what_is_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1, "x")
    logger = DiscreetLogger(logging.getLogger("x"))
    logger.debug("sent %s", Auth(0, "digest", "anna:geheim"))
    logger.debug("sent %s", SASL(b"geheim"))
    logger.debug("sent %s", Connect(0, 1, 2, 3, b"geheim", False))
    logger.debug("session_passwd: %s", b"geheim")
    assert "geheim" not in caplog.text
    assert "anna" not in caplog.text
    assert "scheme='digest'" in caplog.text
    assert [record.filename for record in caplog.records] == ["test_connect.py"] * 3


def test_credentials_are_used_from_the_first_request_on(
    connect: Callable[..., zkfence.Client], zk: zkfence.Client, zkfence_namespace: str
) -> None:
    connect(auth=[("digest", "anna:geheim")]).create(zkfence_namespace, acl=CREATOR_ALL_ACL)
    with pytest.raises(NoAuthError):
        zk.get(zkfence_namespace)


def test_credentials_that_are_refused_are_told(connect: Callable[..., zkfence.Client]) -> None:
    with pytest.raises(zkfence.AccessDenied, match="refuses the credentials"):
        connect(auth=[("nonsense", "x")])
