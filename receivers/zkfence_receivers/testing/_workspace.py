"""The temporary folder of a local server, which goes when the interpreter does, however it ends."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ._process import ServerProcess

# Waits on a pipe whose other end only our process holds. A line: dismissed. End of file: our process is gone.
# The servers are killed by the pids that they have written themselves, and a dying one may still write a file.
# (Linux's PR_SET_PDEATHSIG is no substitute: it fires when the *thread* that started a server ends, and leaves the
# folder behind.)
_GUARD: Final = """
read -r _ && exit
for file in "$1"/*/pid; do
    [ -e "$file" ] && kill -KILL "$(cat "$file")"
done
for attempt in 1 2 3 4 5; do
    rm -rf "$1" && exit
    sleep 1
done
"""


class Workspace:
    """A temporary folder, and the server processes that live in it.

    `close` kills the processes and removes the folder. An interpreter that ends without it does the same at its exit,
    before it is gone. Where there is no orderly exit (SIGKILL, SIGTERM, ``os._exit``) a guard does it a moment later: a
    small shell that waits for the end of our process. Only if that is killed together with us something is left.

    It belongs to the process that made it: a fork of that process neither closes it nor keeps it open.
    """

    def __init__(self, kind: str) -> None:
        self._processes: list[ServerProcess] = []
        # Resolved, because a server names its folder without symbolic links.
        self.path = Path(tempfile.mkdtemp(prefix=f"zkfence-{kind}-")).resolve()
        try:
            self._guard = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "zkfence-guard", str(self.path)],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": os.defpath},  # whatever PATH a test has set
                start_new_session=True,
            )
        except BaseException:
            shutil.rmtree(self.path)
            raise
        atexit.register(self.close)
        _open_workspaces.add(self)

    def add(self, process: ServerProcess) -> None:
        """Let ``process`` end with this folder."""
        self._processes.append(process)

    def close(self) -> None:
        """Kill the processes and remove the folder. A second call, or one in a fork of our process, does nothing."""
        if self not in _open_workspaces:
            return
        # Nothing is left to be saved, so there is no point in a slow, orderly end.
        for process in self._processes:
            process.kill()
        shutil.rmtree(self.path, ignore_errors=True)
        self._dismiss_guard()
        _open_workspaces.discard(self)
        atexit.unregister(self.close)

    def _dismiss_guard(self) -> None:
        assert self._guard.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._guard.stdin as pipe:
            pipe.write(b"dismissed\n")
        self._guard.wait()

    def _leave_to_parent(self) -> None:
        # A fork that held the pipe open would keep the guard waiting after our end.
        assert self._guard.stdin is not None
        self._guard.stdin.close()


_open_workspaces: weakref.WeakSet[Workspace] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for workspace in list(_open_workspaces):
        workspace._leave_to_parent()
    _open_workspaces.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
