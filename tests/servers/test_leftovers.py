"""However an interpreter ends, its local servers and their folders go with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from zkfence_receivers.testing import LocalRedis
from zkfence_receivers.testing._signals import has_ended
from zkfence_receivers.testing._wait import wait_until

REDIS = """
from zkfence_receivers.testing import LocalRedis
server = LocalRedis()
server.start()
started = [server]
workspace = server.folder.parent
"""

ZOOKEEPER = """
from zkfence.testing import LocalEnsemble
ensemble = LocalEnsemble(1)
ensemble.start()
started = ensemble.nodes
workspace = ensemble.nodes[0].folder.parent
"""

TELL = """
print(workspace, *(server.pid for server in started), flush=True)
"""

WAIT = """
import time
time.sleep(60)
"""

ORDERLY = {
    "falls off its end": "",
    "raises": "raise RuntimeError",
    "sys.exit": "import sys; sys.exit(3)",
    "with a paused server": "started[0].pause()",
}
ABRUPT = {
    "os._exit": "import os; os._exit(4)",
    "kills itself": "\nimport os, signal; os.kill(os.getpid(), signal.SIGKILL)",
}


def run(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def told_by(child: subprocess.Popen[str]) -> tuple[Path, list[int]]:
    """The workspace and the server pids that a child has told."""
    assert child.stdout is not None
    workspace, *pids = child.stdout.readline().split()
    return Path(workspace), [int(pid) for pid in pids]


def assert_nothing_is_left(workspace: Path, pids: list[int]) -> None:
    assert pids
    assert wait_until(lambda: not workspace.exists(), timeout=10.0)
    assert wait_until(lambda: all(map(has_ended, pids)), timeout=10.0)
    assert wait_until(lambda: not guards_of(workspace), timeout=10.0)


def guards_of(workspace: Path) -> list[Path]:
    return [process for process in Path("/proc").iterdir() if process.name.isdigit() and names(process, workspace)]


def names(process: Path, workspace: Path) -> bool:
    try:
        return str(workspace) in (process / "cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("ending", ORDERLY)
def test_an_interpreter_that_ends_without_closing_has_cleaned_up_when_it_is_gone(ending: str) -> None:
    with run(REDIS + TELL + ORDERLY[ending]) as child:
        workspace, pids = told_by(child)
    assert not workspace.exists()
    assert all(map(has_ended, pids))
    assert_nothing_is_left(workspace, pids)


@pytest.mark.parametrize("ending", ABRUPT)
def test_an_interpreter_that_ends_abruptly_leaves_nothing(ending: str) -> None:
    with run(REDIS + TELL + ABRUPT[ending]) as child:
        workspace, pids = told_by(child)
    assert_nothing_is_left(workspace, pids)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_an_interpreter_that_is_ended_by_a_signal_leaves_nothing(sent: signal.Signals) -> None:
    with run(REDIS + TELL + WAIT) as child:
        workspace, pids = told_by(child)
        child.send_signal(sent)
    assert_nothing_is_left(workspace, pids)


@pytest.mark.parametrize("ending", [ORDERLY["falls off its end"], ABRUPT["kills itself"]], ids=["orderly", "abrupt"])
def test_an_ensemble_goes_with_its_interpreter(ending: str) -> None:
    with run(ZOOKEEPER + TELL + ending) as child:
        workspace, pids = told_by(child)
    assert_nothing_is_left(workspace, pids)


def test_an_interrupt_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    program = f"import tempfile; tempfile.tempdir = {str(tmp_path)!r}\n" + ZOOKEEPER + WAIT
    with run(program) as child:
        assert wait_until(lambda: list(tmp_path.glob("*/node-1/pid")), timeout=20.0)
        [pid_file] = tmp_path.glob("*/node-1/pid")
        assert wait_until(lambda: pid_file.read_text().strip(), timeout=5.0)
        pid = int(pid_file.read_text())
        child.send_signal(signal.SIGINT)
    assert wait_until(lambda: has_ended(pid), timeout=10.0)
    assert wait_until(lambda: not list(tmp_path.iterdir()), timeout=10.0)


def test_a_fork_that_ends_in_an_orderly_way_leaves_the_servers_to_its_parent() -> None:
    fork = """
import os, sys
child = os.fork()
if child == 0:
    sys.exit()  # with the exit handlers
os.waitpid(child, 0)
"""
    with run(REDIS + fork + TELL + "print(workspace.exists() and server.client().ping(), flush=True)") as child:
        workspace, pids = told_by(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "True\n"
    assert_nothing_is_left(workspace, pids)


def test_a_fork_that_lives_on_does_not_keep_the_servers_of_a_killed_parent() -> None:
    fork = """
import os, time
fork = os.fork()
if fork == 0:
    os.close(1)
    time.sleep(60)
"""
    with run(REDIS + fork + TELL + "print(fork, flush=True)" + ABRUPT["kills itself"]) as child:
        workspace, pids = told_by(child)
        assert child.stdout is not None
        fork_pid = int(child.stdout.readline())
    assert_nothing_is_left(workspace, pids)
    os.kill(fork_pid, signal.SIGKILL)


def test_a_fork_cannot_control_the_servers_nor_make_the_guard_forget_them() -> None:
    fork = """
import os
from zkfence_receivers.testing import ServerFailed
child = os.fork()
if child == 0:
    for control in (server.pause, server.kill, server.restart, lambda: server.running, lambda: server.pid):
        try:
            control()
        except ServerFailed as error:
            assert "a fork cannot control it" in str(error)
        else:
            os._exit(1)
    os._exit(0)
refused = os.waitpid(child, 0)[1] == 0
"""
    with run(REDIS + fork + TELL + "print(refused, flush=True)" + ABRUPT["kills itself"]) as child:
        workspace, pids = told_by(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "True\n"
    assert_nothing_is_left(workspace, pids)


def test_a_server_is_out_of_reach_of_the_terminal() -> None:
    # A Ctrl-C goes to the terminal's foreground process group, and its end (a hang-up) to its session.
    with LocalRedis() as server:
        assert os.getpgid(server.pid) != os.getpgrp()
        assert os.getsid(server.pid) != os.getsid(0)
