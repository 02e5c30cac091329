"""RedisReceiver runs only where the server keeps what it acknowledges, and says what it does not know."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from zkfence_receivers import RedisReceiver, Stamp, StoreFailed, Token, UnsafeStore, UnverifiedStore
from zkfence_receivers.testing import LocalRedis

STAMP = Stamp(Token(7), "n/l", "guid-a", op=1)
SAFE = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
}


def wait_for(condition: Callable[[], bool], timeout: float = 10.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def server() -> Iterator[LocalRedis]:
    with LocalRedis() as server:
        yield server


@pytest.fixture
def client(server: LocalRedis) -> Iterator[redis.Redis]:
    """A client of a server that is safe before and after the test."""
    with server.client() as client:
        client.flushall()
        client.script_flush()
        yield client
        for name, value in SAFE.items():
            client.config_set(name, value)
        wait_for(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0)


def test_a_durable_server_is_verified_by_the_first_request(client: redis.Redis) -> None:
    store = RedisReceiver(client)
    assert store.durability == "unverified"
    store.claim("r", STAMP)
    assert store.durability == "verified"
    assert RedisReceiver(client).check() == "verified"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("appendonly", "no"),
        ("appendfsync", "everysec"),
        ("appendfsync", "no"),
        ("no-appendfsync-on-rewrite", "yes"),
        ("maxmemory-policy", "allkeys-lru"),
        ("maxmemory-policy", "volatile-ttl"),
    ],
)
def test_a_server_that_may_lose_marks_is_refused_and_the_error_says_how_to_mend_it(
    client: redis.Redis, setting: str, value: str
) -> None:
    client.config_set(setting, value)
    store = RedisReceiver(client)
    for attempt in (store.check, lambda: store.claim("r", STAMP), lambda: store.apply_stamped("r", b"", STAMP)):
        with pytest.raises(UnsafeStore) as caught:
            attempt()
        message = str(caught.value)
        assert f"{setting} is {value!r}" in message
        assert f"CONFIG SET {setting} {SAFE[setting]}" in message
        assert f"`{setting} {SAFE[setting]}` in redis.conf" in message
        assert [name for name in SAFE if f"{name} is" in message] == [setting]
    assert client.dbsize() == 0
    client.config_set(setting, SAFE[setting])
    wait_for(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0)
    store.claim("r", STAMP).write(b"data")  # mended, the same receiver goes on
    assert store.durability == "verified"


def test_every_wrong_setting_is_told_at_once(client: redis.Redis) -> None:
    client.config_set("appendfsync", "everysec")
    client.config_set("maxmemory-policy", "allkeys-random")
    with pytest.raises(UnsafeStore, match=r"appendfsync is 'everysec'.*maxmemory-policy is 'allkeys-random'"):
        RedisReceiver(client).claim("r", STAMP)


def test_redis_as_it_comes_is_refused() -> None:
    with (
        LocalRedis(config={"appendonly": "no", "appendfsync": "everysec"}) as server,
        server.client() as client,
        pytest.raises(UnsafeStore, match=r"appendonly is 'no'.*appendfsync is 'everysec'"),
    ):
        RedisReceiver(client).claim("r", STAMP)


def test_a_replica_is_refused(client: redis.Redis) -> None:
    client.execute_command("REPLICAOF", "127.0.0.1", 1)
    try:
        with pytest.raises(UnsafeStore, match="role is slave"):
            RedisReceiver(client).claim("r", STAMP)
        for attempt in (
            lambda store: store.claim("r", STAMP),
            lambda store: store.apply_stamped("r", b"", STAMP),
        ):
            with pytest.raises(UnsafeStore, match="replica; connect to the master"):
                attempt(RedisReceiver(client, durability="asserted"))
        assert client.dbsize() == 0
    finally:
        client.execute_command("REPLICAOF", "NO", "ONE")


def test_a_server_whose_first_append_only_file_is_being_made_is_refused() -> None:
    with LocalRedis(config={"appendonly": "no"}) as server, server.client() as client:
        for number in range(100):
            client.set(f"filler-{number}", "x")
        client.config_set("rdb-key-save-delay", 100_000)  # microseconds for each key
        client.config_set("appendonly", "yes")
        store = RedisReceiver(client)
        with pytest.raises(UnsafeStore, match="still being made"):
            store.claim("r", STAMP)
        client.config_set("appendonly", "no")  # ends the slow child
        client.config_set("rdb-key-save-delay", 0)
        client.config_set("appendonly", "yes")
        wait_for(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0)
        store.claim("r", STAMP).write(b"data")


def test_an_ordinary_rewrite_of_the_append_only_file_is_no_reason_to_refuse(client: redis.Redis) -> None:
    store = RedisReceiver(client)
    store.claim("r", STAMP).write(os.urandom(1000))
    client.bgrewriteaof()
    wait_for(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0)
    client.set("filler", "x")
    client.config_set("rdb-key-save-delay", 100_000)
    try:
        client.bgrewriteaof()
        wait_for(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 1)
        assert store.check() == "verified"
    finally:
        client.config_set("rdb-key-save-delay", 0)


def test_the_operators_word_is_taken(client: redis.Redis) -> None:
    client.config_set("appendfsync", "everysec")
    store = RedisReceiver(client, durability="asserted")
    handle = store.claim("r", STAMP)
    handle.write(b"data")
    assert handle.read() == b"data"
    assert store.check() == "asserted"
    assert store.durability == "asserted"


@pytest.mark.parametrize("forbidden", [["-config"], ["-info", "-config"]])
def test_settings_that_may_not_be_read_are_unverified_and_warned_of(
    server: LocalRedis, client: redis.Redis, forbidden: list[str]
) -> None:
    client.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">secret", "~zkfence:*", "+@all", *forbidden)
    with server.client(username="worker", password="secret") as worker:
        store = RedisReceiver(worker)
        with pytest.warns(UnverifiedStore, match="appendfsync") as caught:
            handle = store.claim("r", STAMP)
        assert len(caught) == 1
        assert "asserted" in str(caught[0].message)
        assert store.durability == "unverified"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            handle.write(b"data")  # warned of once


def test_what_is_known_to_be_wrong_is_refused_even_where_not_everything_may_be_read(
    server: LocalRedis, client: redis.Redis
) -> None:
    client.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">secret", "~zkfence:*", "+@all", "-config")
    with server.client(username="worker", password="secret") as worker:
        client.config_set("maxmemory-policy", "allkeys-lfu")
        with pytest.raises(UnsafeStore, match="maxmemory-policy"):
            RedisReceiver(worker).claim("r", STAMP)
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("appendonly", "no")
        with pytest.raises(UnsafeStore, match="appendonly"):
            RedisReceiver(worker).claim("r", STAMP)


def test_a_managed_service_without_config_is_unverified() -> None:
    with LocalRedis(config={"rename-command": 'CONFIG ""'}) as server, server.client() as client:
        store = RedisReceiver(client)
        with pytest.warns(UnverifiedStore, match="appendfsync, no-appendfsync-on-rewrite"):
            store.claim("r", STAMP).write(b"data")
        assert store.durability == "unverified"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            RedisReceiver(client, durability="asserted").claim("s", STAMP)


def test_a_restarted_server_is_looked_at_again() -> None:
    with LocalRedis(config={"appendfsync": "everysec"}) as server, server.client() as client:
        client.config_set("appendfsync", "always")  # and not in redis.conf, where it belongs
        store = RedisReceiver(client)
        handle = store.claim("r", STAMP)
        handle.write(b"one")
        server.kill()
        server.restart()
        with pytest.raises(UnsafeStore, match="appendfsync is 'everysec'"):
            handle.write(b"two")
        assert client.get("zkfence:{r}:data") == b"one"
        client.config_set("appendfsync", "always")
        handle.write(b"two")
        assert handle.read() == b"two"


def test_the_check_of_a_server_that_is_not_there() -> None:
    with (
        redis.Redis(port=1, retry=Retry(NoBackoff(), 0)) as nowhere,
        pytest.raises(StoreFailed, match="could not be read"),
    ):
        RedisReceiver(nowhere).check()
