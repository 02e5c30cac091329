"""Stopping a process for certain, be it ours or not."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Final

from ._wait import wait_until

_STOPPED: Final = frozenset("Tt")
_ENDED: Final = frozenset("ZX")  # dead, though perhaps not yet waited for
_PATIENCE: Final = 5.0  # a thread in the middle of a write to a slow disk stops when that is done


def freeze(pid: int) -> None:
    """Send SIGSTOP, and return when the process stands still: every thread of it, not only the first.

    Raises ProcessLookupError where there is no such process, or it has ended.
    """
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _thread_states(pid) <= _STOPPED | _ENDED, _PATIENCE, every=0.001)
    if has_ended(pid):
        raise ProcessLookupError(f"process {pid} has ended")


def thaw(pid: int) -> None:
    """Send SIGCONT. Raises ProcessLookupError where there is no such process, or it has ended."""
    os.kill(pid, signal.SIGCONT)
    if has_ended(pid):
        raise ProcessLookupError(f"process {pid} has ended")


def has_ended(pid: int) -> bool:
    """Whether there is no such process, or only its exit status is left of it."""
    return _thread_states(pid) <= _ENDED


def _thread_states(pid: int) -> set[str]:
    """The letters that ``ps`` shows for its threads; on systems without ``/proc`` one for the whole process."""
    if not Path("/proc/self/task").exists():
        shown = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, check=False, text=True)
        return set(shown.stdout.strip()[:1])
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return set()
    return {state for task in tasks if (state := _state(task))}


def _state(task: Path) -> str | None:
    """The state of one thread; ``None`` where it has ended while we looked."""
    try:
        # "id (name) state …", and the name may hold anything.
        return (task / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None
