"""LocalRedis: a real Redis server that comes up, falls, comes back, and goes."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from zkfence_receivers.testing import LocalRedis, ServerFailed, ServerNotFound, _ports
from zkfence_receivers.testing._signals import has_ended
from zkfence_receivers.testing._wait import wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[LocalRedis]:
    with LocalRedis() as server:
        yield server


@pytest.fixture
def client(server: LocalRedis) -> Iterator[redis.Redis]:
    with server.client(decode_responses=True) as client:
        yield client


def test_it_is_durable_unless_told_otherwise(client: redis.Redis) -> None:
    settings = {
        name: client.config_get(name)[name] for name in ("appendonly", "appendfsync", "maxmemory-policy", "save")
    }
    assert settings == {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction", "save": ""}


def test_its_url_names_it(server: LocalRedis) -> None:
    assert server.url == f"redis://127.0.0.1:{server.port}/0"
    with redis.Redis.from_url(server.url) as client:
        assert client.info("server")["process_id"] == server.pid


def test_configuration_is_as_in_redis_conf() -> None:
    config = {"appendfsync": "everysec", "save": "3600 1 300 100", "databases": 2, "requirepass": "secret"}
    with LocalRedis(config=config) as server, server.client(decode_responses=True) as client:
        assert client.config_get("appendfsync", "save", "databases") == {
            "appendfsync": "everysec",
            "save": "3600 1 300 100",
            "databases": "2",
        }
        with server.client(password=None, retry=None) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()


def test_a_kill_in_the_middle_of_writing_loses_nothing_that_was_acknowledged(server: LocalRedis) -> None:
    acknowledged = 0

    def write_until_it_is_gone() -> None:
        nonlocal acknowledged
        with server.client(retry=None) as writer:
            while True:
                try:
                    acknowledged = writer.incr("counter")
                except redis.ConnectionError:
                    return

    writer = threading.Thread(target=write_until_it_is_gone)
    writer.start()
    assert wait_until(lambda: acknowledged > 200, timeout=20.0)
    server.kill()
    writer.join()
    assert not server.running
    port = server.port
    server.restart()
    assert server.port == port
    with server.client() as client:
        assert acknowledged <= int(client.get("counter") or 0) <= acknowledged + 1


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_paused_server_can_be_ended_and_restarted_with_its_data(
    server: LocalRedis, client: redis.Redis, end: str
) -> None:
    client.set("kept", end)
    server.pause()
    assert server.running
    getattr(server, end)()
    assert not server.running
    orderly = "ready to exit, bye bye" in (server.folder / "log").read_text().splitlines()[-1]
    assert orderly == (end == "stop")
    server.restart()
    assert client.get("kept") == end


def test_the_pid_of_a_server_that_has_ended_is_forgotten(server: LocalRedis) -> None:
    # The guard kills what has registered itself, and by then the number may be another process's.
    registered = server.folder / "pid"
    assert int(registered.read_text()) == server.pid
    for end in (server.kill, server.stop, lambda: os.kill(server.pid, signal.SIGTERM)):
        end()
        assert wait_until(lambda: not server.running, timeout=10.0)
        assert not registered.exists()
        server.restart()


def test_a_paused_server_answers_nobody_until_it_resumes(server: LocalRedis) -> None:
    with server.client(socket_timeout=0.2, retry=None) as client:
        client.ping()
        server.pause()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        server.resume()
        server.wait_until_ready()
        assert client.ping()


def test_a_restart_stops_a_running_server_first(server: LocalRedis, client: redis.Redis) -> None:
    client.set("kept", "restart")
    before = server.pid
    server.restart()
    assert server.pid != before
    assert client.get("kept") == "restart"


def test_close_leaves_no_process_and_no_folder() -> None:
    server = LocalRedis()
    server.start()
    pid, workspace = server.pid, server.folder.parent
    server.pause()
    server.close()
    server.close()
    assert has_ended(pid)
    assert not workspace.exists()
    assert not server.running
    with pytest.raises(ServerFailed, match="was not started"):
        _ = server.port


def test_a_second_start_is_refused(server: LocalRedis) -> None:
    with pytest.raises(ServerFailed, match="started before"):
        server.start()


def test_a_port_that_was_taken_meanwhile_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        taken = somebody.getsockname()[1]
        answers = iter([[taken], _ports.free_ports(1)])
        monkeypatch.setattr("zkfence_receivers.testing._redis.free_ports", lambda count: next(answers))
        with LocalRedis() as server:
            assert server.port != taken


def test_another_server_on_the_port_does_not_pass_for_this_one(
    server: LocalRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([[server.port], _ports.free_ports(1)])
    monkeypatch.setattr("zkfence_receivers.testing._redis.free_ports", lambda count: next(answers))
    with LocalRedis() as second:
        assert second.port != server.port


def test_a_configuration_that_redis_refuses_is_told_with_its_words() -> None:
    with pytest.raises(ServerFailed, match="no-such-setting") as failure:
        LocalRedis(config={"no-such-setting": "1"}).start()
    assert "redis has ended with status 1" in str(failure.value)


def test_a_missing_server_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ZKFENCE_REDIS_SERVER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerNotFound, match="apt install redis-server"):
        LocalRedis().start()


def test_the_binary_can_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ServerNotFound, match="'/nowhere/redis-server'"):
        LocalRedis(executable="/nowhere/redis-server").start()
    wrapper = tmp_path / "my-redis"
    wrapper.write_text('#!/bin/sh\necho "my own"\nexec redis-server "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("ZKFENCE_REDIS_SERVER", str(wrapper))
    with LocalRedis() as server:
        assert (server.folder / "log").read_text().startswith("my own\n")


def test_missing_redis_py_names_the_extra(server: LocalRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ImportError, match=r"zkfence\[redis\]"):
        server.client()
