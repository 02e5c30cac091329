"""Stopping a process for certain."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from ._wait import wait_until


def freeze(pid: int) -> None:
    """Send SIGSTOP, and return when the process has really stopped: every thread of it, not only the first.

    Where that cannot be seen (another process's child on a system without ``/proc``) it returns at once.
    Raises ProcessLookupError where there is no such process.
    """
    os.kill(pid, signal.SIGSTOP)
    try:
        # Leaves what it sees to be seen by others too: the exit of a child belongs to its Popen.
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        wait_until(lambda: _all_threads_stand(pid), 5.0, every=0.001)


def thaw(pid: int) -> None:
    """Send SIGCONT. Raises ProcessLookupError where there is no such process."""
    os.kill(pid, signal.SIGCONT)


def _all_threads_stand(pid: int) -> bool:
    """Whether each thread is stopped (T, t) or gone (Z, X)."""
    try:
        return all(_thread_state(task) in "TtZX" for task in Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return True


def _thread_state(task: Path) -> str:
    # "pid (name) state …", and the name may hold anything.
    return (task / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
