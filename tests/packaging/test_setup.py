"""The set-up on a machine where it cannot install anything says what has to be installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import ROOT

# What the script may use before it knows what the machine has.
_TOOLS = ["cat", "cmp", "dirname", "mkdir", "sed", "sh", "uname"]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A clone's scripts, and a ``bin`` for the PATH: an ordinary user's, without sudo, Python, Java and Redis."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in _TOOLS:
        found = shutil.which(name)
        assert found, name
        (tools / name).symlink_to(found)
    _program(tools / "id", "echo 1000")
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    shutil.copy(ROOT / "constraints.txt", tmp_path)
    return tmp_path


def _program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)


def _set_up(machine: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", machine / "scripts" / "setup.sh"],
        env={"PATH": str(machine / "bin"), "ZOOKEEPER_HOME": "/opt/zookeeper"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_without_root_it_tells_the_debian_command(machine: Path) -> None:
    _program(machine / "bin" / "apt-get", "exit 1")

    ran = _set_up(machine)

    assert ran.returncode == 1
    (command,) = [line for line in ran.stderr.splitlines() if "apt-get" in line]
    wanted = {"python3", "default-jre-headless", "redis-server"}
    assert wanted <= set(command.split())


def test_what_is_there_is_not_asked_for(machine: Path) -> None:
    _program(machine / "bin" / "apt-get", "exit 1")
    _program(machine / "bin" / "redis-server", "echo 'Redis server v=6.2.0 sha=00000000:0 malloc=libc bits=64'")
    _program(machine / "bin" / "java", """echo 'openjdk version "11.0.2" 2019-01-15' >&2""")

    ran = _set_up(machine)

    (command,) = [line for line in ran.stderr.splitlines() if "apt-get" in line]
    assert command.endswith("--no-install-recommends python3 python3-venv")


@pytest.mark.parametrize("version", ['java version "1.8.0_292"', "The operation couldn't be completed."])
def test_a_java_that_is_too_old_or_no_java_at_all_is_missing(machine: Path, version: str) -> None:
    _program(machine / "bin" / "apt-get", "exit 1")
    _program(machine / "bin" / "java", f"cat >&2 <<'EOF'\n{version}\nEOF")

    assert "default-jre-headless" in _set_up(machine).stderr


def test_a_redis_that_is_too_old_is_missing(machine: Path) -> None:
    _program(machine / "bin" / "apt-get", "exit 1")
    _program(machine / "bin" / "redis-server", "echo 'Redis server v=6.0.16 sha=00000000:0 malloc=libc bits=64'")

    assert "redis-server" in _set_up(machine).stderr


def test_without_apt_it_tells_what_is_needed(machine: Path) -> None:
    ran = _set_up(machine)

    assert ran.returncode == 1
    assert "Java 11" in ran.stderr
    assert "redis-server" in ran.stderr
