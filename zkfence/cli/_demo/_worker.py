"""Worker: a worker process, as the demo sees it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from zkfence_receivers.testing._workspace import Workspace

from . import _program
from ._assignment import Assignment
from ._failure import DemoFailed
from ._interruption import Interruption

Answer: TypeAlias = "dict[str, Any]"

PATIENCE: Final = 30.0  # seconds that anything may take, on however slow a machine
_LEAVE_TIMEOUT: Final = 5.0
_LOG_TAIL: Final = 15  # lines

# The process registers itself before it becomes the worker, so that the guard of the workspace finds it: a stopped
# process does not notice that its input has ended.
_REGISTER_AND_RUN: Final = 'echo $$ >"$0" && exec "$@"'


class Worker:
    """A process in a session of its own (a terminal's Ctrl-C does not reach it), which takes orders.

    A context manager, whose end is the end of the process in whatever state it is. Where we are killed ourselves, the
    guard of the workspace sees to that.
    """

    def __init__(self, assignment: Assignment, workspace: Workspace, interruption: Interruption) -> None:
        self.name: Final = assignment.name
        self._interruption = interruption
        folder = workspace.path / f"{assignment.resource}-{assignment.name}"
        folder.mkdir()
        self._pid_file = folder / "pid"
        self._log = folder / "log"
        # -P: the user's current folder is no place to import from.
        command = [sys.executable, "-P", "-m", _program.__name__]
        with self._log.open("wb") as log:
            self._popen = subprocess.Popen(
                ["/bin/sh", "-c", _REGISTER_AND_RUN, self._pid_file, *command],
                text=True,
                encoding="utf-8",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._write(assignment.to_json())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(_LEAVE_TIMEOUT)
        self.kill()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def tell(self, order: str, **details: object) -> None:
        """Give it an order; a stopped one finds it when it wakes up."""
        self._write(json.dumps({"do": order, **details}))

    def answer(self) -> Answer:
        """Wait for its next answer. Raises `DemoFailed` where it failed, ended, or takes too long."""
        assert self._popen.stdout is not None
        with self._interruption.waiting(f"the answer of worker {self.name}", PATIENCE):
            line = self._popen.stdout.readline()
        if not line:
            raise self._has_ended()
        answer: Answer = json.loads(line)
        if "failed" in answer:
            raise DemoFailed(f"worker {self.name} failed: {answer['failed']}")
        return answer

    def ask(self, order: str, **details: object) -> Answer:
        """`tell`, and wait for the `answer`."""
        self.tell(order, **details)
        return self.answer()

    def dismiss(self) -> None:
        """Let it end in an orderly way; the end of the ``with`` block waits for that."""
        self.tell("leave")

    def kill(self) -> None:
        """End it (SIGKILL), stopped or not, and wait for its end."""
        self._popen.kill()
        self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):  # an order that it did not live to read
                pipe.close()
        self._pid_file.unlink(missing_ok=True)  # its pid may belong to another process from now on

    def _write(self, line: str) -> None:
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(f"{line}\n")
            self._popen.stdin.flush()
        except BrokenPipeError:
            raise self._has_ended() from None

    def _has_ended(self) -> DemoFailed:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(_LEAVE_TIMEOUT)
        status = self._popen.returncode
        log = self._log.read_text(errors="replace").splitlines()[-_LOG_TAIL:]
        return DemoFailed("\n".join([f"worker {self.name} ended with status {status}; the end of its log:", *log]))
