"""The pytest plugin, as a stranger's test suite meets it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

USES_ALL = """
import re

def test_one(zkfence_ensemble, zkfence_zk, zkfence_namespace):
    assert re.fullmatch("/t-[0-9a-f]{12}", zkfence_namespace)
    zkfence_zk.create(zkfence_namespace, ephemeral=True)
    assert len(zkfence_ensemble.nodes) == 1
    seen.append(zkfence_namespace)

def test_next(zkfence_ensemble, zkfence_zk, zkfence_namespace):
    assert zkfence_namespace not in seen
    assert not zkfence_zk.exists(seen[0])  # the session of the first test has ended with it

def test_three(zkfence_ensemble3):
    assert len(zkfence_ensemble3.nodes) == 3

def test_redis(zkfence_redis):
    with zkfence_redis.client() as client:
        assert client.ping()

seen = []
"""

USES_EACH = """
def test_redis(zkfence_redis): pass
def test_zookeeper(zkfence_zk): pass
"""
ADVICE = ("apt install redis-server", "apt install libzookeeper-java")


def run_pytest(folder: Path, tests: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_theirs.py").write_text(tests)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "-rs"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        check=False,
        text=True,
    )


def test_the_fixtures_are_there_without_being_asked_for(tmp_path: Path) -> None:
    result = run_pytest(tmp_path, USES_ALL)
    assert "4 passed" in result.stdout, result.stdout + result.stderr


def test_a_missing_server_fails_with_what_to_install_and_skips_only_when_asked(tmp_path: Path) -> None:
    nothing = {
        "PATH": str(tmp_path),
        "JAVA_HOME": "",
        "ZKFENCE_REDIS_SERVER": "",
        "ZKFENCE_ZOOKEEPER_CLASSPATH": str(tmp_path / "nowhere.jar"),
    }
    failed = run_pytest(tmp_path, USES_EACH, **nothing, ZKFENCE_SKIP_MISSING="").stdout
    assert "2 errors" in failed
    assert all(advice in failed for advice in ADVICE)
    assert "Traceback" not in failed
    skipped = run_pytest(tmp_path, USES_EACH, **nothing, ZKFENCE_SKIP_MISSING="1").stdout
    assert "2 skipped" in skipped
    assert all(advice in skipped for advice in ADVICE)


def test_it_loads_nothing_heavy_before_a_fixture_is_used() -> None:
    heavy = {"kazoo", "redis", "asyncio", "ssl"}
    program = f"import sys, zkfence.testing.plugin; print(*sorted({heavy} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert result.stdout.split() == []
