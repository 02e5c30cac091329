"""However the demo ends, nothing of it stays behind."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from zkfence.testing import LocalEnsemble, LocalRedis
from zkfence_receivers.testing._wait import wait_until

from .conftest import Demo, StartDemo

PAUSED = "is stopped"
SECOND_HALF_OF_ACT_3 = "Act 3b: "


def has_java(demo: Demo) -> bool:
    return any("java" in Path(f"/proc/{pid}/exe").readlink().name for pid in demo.processes())


class TestCtrlC:
    def test_while_zookeeper_starts(self, start_demo: StartDemo) -> None:
        demo = start_demo(terminal=True)
        assert wait_until(lambda: has_java(demo), 60)
        demo.type(b"\x03")
        assert demo.wait() == 130
        assert demo.leftovers() == []

    def test_while_a_worker_is_stopped(self, start_demo: StartDemo) -> None:
        demo = start_demo(terminal=True)
        demo.read_until(PAUSED)
        demo.type(b"\x03")
        assert demo.wait() == 130
        assert demo.leftovers() == []
        assert demo.output.rindex(b"\x1b[?25h") > demo.output.rindex(b"\x1b[?25l")  # the cursor is back


class TestSigterm:
    def test_on_servers_of_others(
        self, start_demo: StartDemo, zkfence_ensemble: LocalEnsemble, zkfence_zk: KazooClient, zkfence_redis: LocalRedis
    ) -> None:
        nodes = set(zkfence_zk.get_children("/"))
        with zkfence_redis.client() as redis:
            keys = set(redis.keys())
            demo = start_demo("--zk", zkfence_ensemble.hosts, "--redis", zkfence_redis.url)
            demo.read_until(SECOND_HALF_OF_ACT_3)
            assert set(zkfence_zk.get_children("/")) > nodes
            assert set(redis.keys()) > keys
            demo.read_until(PAUSED)
            demo.process.send_signal(signal.SIGTERM)
            assert demo.wait() == 143
            assert demo.leftovers() == []
            assert set(zkfence_zk.get_children("/")) == nodes
            assert set(redis.keys()) == keys


class TestSigkill:
    def test_takes_a_stopped_worker_along(self, start_demo: StartDemo) -> None:
        demo = start_demo()
        demo.read_until(PAUSED)
        demo.process.kill()
        demo.process.wait()
        assert wait_until(lambda: not demo.leftovers(), 20), demo.leftovers()


class TestWhatIsMissing:
    @pytest.mark.parametrize(
        ("arguments", "environment", "advice"),
        [
            ((), {"PATH": "", "JAVA_HOME": ""}, "no Java"),
            ((), {"ZKFENCE_ZOOKEEPER_CLASSPATH": "/nowhere.jar"}, "no ZooKeeper"),
            (("--receiver", "redis"), {"ZKFENCE_REDIS_SERVER": "/nowhere"}, "No Redis server"),
        ],
    )
    def test_a_server_is_said(
        self, start_demo: StartDemo, arguments: Sequence[str], environment: Mapping[str, str], advice: str
    ) -> None:
        demo = start_demo(*arguments, **environment)
        assert demo.wait() == 2
        assert advice in demo.errors
        assert "nstall" in demo.errors
        assert "Traceback" not in demo.errors
        assert demo.leftovers() == []
