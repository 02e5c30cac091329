"""ServerProcess: one local server process."""

from __future__ import annotations

import enum
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ._errors import ServerFailed
from ._signals import freeze, thaw
from ._wait import wait_until
from ._workspace import Workspace

# The process registers itself before it becomes the server: there is no moment at which it runs and the guard of the
# workspace does not know of it. Where the guard was faster, the folder is gone and nothing is started.
_REGISTER_AND_RUN: Final = 'echo $$ >"$0" && exec "$@"'
_TAIL_LINES: Final = 25


class State(enum.Enum):
    """What a process is doing."""

    RUNNING = "running"
    PAUSED = "paused"
    ENDED = "ended"


class ServerProcess:
    """A server process with a folder of its own inside a workspace: where it runs, and where its log goes.

    It runs in its own session, so that a terminal's Ctrl-C reaches us and not it: we clean up. It may be started
    again after it has ended; folder and log stay. Not to be shared by threads, and not controlled by a fork of ours.
    """

    def __init__(self, workspace: Workspace, name: str) -> None:
        self.name = name
        self.folder = workspace.path / name
        self.folder.mkdir()
        self.log = self.folder / "log"
        self._pid_file = self.folder / "pid"
        self._popen: subprocess.Popen[bytes] | None = None
        self._state = State.ENDED
        self._log_start = 0
        self._owner = os.getpid()
        workspace.add(self)

    @property
    def state(self) -> State:
        """What it is doing now; a process that ended by itself is noticed here."""
        if os.getpid() != self._owner:
            # To a fork, which is not its parent, it looks as if it had ended: its pid would be forgotten.
            raise ServerFailed(f"{self.name} belongs to process {self._owner}: a fork cannot control it")
        if self._popen is not None and self._popen.poll() is not None:
            self._ended()
        return self._state

    @property
    def running(self) -> bool:
        """Whether there is a process, paused or not."""
        return self.state is not State.ENDED

    @property
    def pid(self) -> int:
        """Its process id. Raises `ServerFailed` where it is not running."""
        return self._running_popen().pid

    def start(self, command: Sequence[str | Path]) -> None:
        """Start it; it is not ready yet. Raises `ServerFailed` where it is already running."""
        if self.running:
            raise ServerFailed(f"{self.name} is already running")
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._popen = subprocess.Popen(
                ["/bin/sh", "-c", _REGISTER_AND_RUN, self._pid_file, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,
            )
        self._state = State.RUNNING

    def wait_until_ready(self, ready: Callable[[int], bool], timeout: float) -> None:
        """Wait until ``ready``, which is given the pid, says so. Raises `ServerFailed` where the process ends before,
        or time is up.
        """
        popen = self._popen
        if popen is None:
            raise ServerFailed(f"{self.name} was not started")
        wait_until(lambda: not self.running or ready(popen.pid), timeout)
        if not self.running:
            raise ServerFailed(f"{self.name} has ended with status {popen.returncode}", self.log_tail())
        if not ready(popen.pid):
            raise ServerFailed(f"{self.name} was not ready within {timeout:g} s", self.log_tail())

    def pause(self) -> None:
        """Stop it in its tracks (SIGSTOP): connections stay open and nobody answers. Returns when it stands still."""
        self._put(State.PAUSED, freeze)

    def resume(self) -> None:
        """Let a paused one go on (SIGCONT); one that is not paused does not mind."""
        self._put(State.RUNNING, thaw)

    def kill(self) -> None:
        """End it without warning (SIGKILL), paused or not, and wait for its end. One that has ended is left alone."""
        if self.running:
            popen = self._running_popen()
            popen.kill()
            popen.wait()
            self._ended()

    def stop(self, timeout: float = 10.0) -> None:
        """End it in an orderly way (SIGTERM), after ``timeout`` seconds by force. A paused one is resumed first."""
        if not self.running:
            return
        popen = self._running_popen()
        popen.send_signal(signal.SIGTERM)
        popen.send_signal(signal.SIGCONT)  # the second, so that it wakes to its end
        try:
            popen.wait(timeout)
        except subprocess.TimeoutExpired:
            popen.kill()
            popen.wait()
        self._ended()

    def log_tail(self) -> str:
        """The last lines that it has logged since its last start."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return b"\n".join(log.read().splitlines()[-_TAIL_LINES:]).decode(errors="replace")

    def _put(self, state: State, change: Callable[[int], None]) -> None:
        try:
            change(self._running_popen().pid)
        except ProcessLookupError:
            raise ServerFailed(f"{self.name} has just ended", self.log_tail()) from None
        self._state = state

    def _running_popen(self) -> subprocess.Popen[bytes]:
        if not self.running:
            raise ServerFailed(f"{self.name} is not running")
        assert self._popen is not None
        return self._popen

    def _ended(self) -> None:
        # Its pid may belong to another process from now on.
        self._pid_file.unlink(missing_ok=True)
        self._state = State.ENDED
