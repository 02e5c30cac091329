"""WorkerProcess: a contender's worker, seen from the benchmark."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

_ROOT: Final = Path(__file__).parents[2]
_END_TIMEOUT: Final = 10.0
_TAIL_LINES: Final = 15


class WorkerFailed(Exception):
    """A worker has ended, or has not answered, or something went wrong in it: its cell is void."""


class WorkerProcess:
    """Started when it is first asked for something, and again where it has ended in between."""

    def __init__(self, command: Sequence[str], log: Path, *, stays: bool) -> None:
        """``log``: where its standard error goes. ``stays``: whether it outlives a cell."""
        self._command = command
        self._log = log
        self._stays = stays
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def ask(self, command: str, *, timeout: float) -> dict[str, Any]:
        """Its answer. Raises `WorkerFailed` where there is none within ``timeout`` seconds."""
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(f"{command}\n".encode())
        except BrokenPipeError:
            raise self._failed("has ended") from None
        answer: dict[str, Any] = json.loads(self._line(process, command, timeout))
        return answer

    def stop(self, *, timeout: float) -> None:
        """End its cell, within ``timeout`` seconds, and where it does not stay its process. Raises `WorkerFailed`."""
        self.ask("stop", timeout=timeout)
        if not self._stays:
            self.end()

    def end(self) -> None:
        """Its standard input ends, and so does it; one that does not is killed."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(_END_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def kill(self) -> None:
        """End it without asking."""
        if self._process is not None:
            self._process.kill()
        self.end()

    def _start(self) -> subprocess.Popen[bytes]:
        self._unread = b""
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,  # a terminal's Ctrl-C is for the benchmark, which ends its workers
            )
        return self._process

    def _line(self, process: subprocess.Popen[bytes], command: str, timeout: float) -> bytes:
        assert process.stdout is not None
        deadline = time.monotonic() + timeout
        while b"\n" not in self._unread:
            if not select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise self._failed(f"did not answer to {command!r} within {timeout:g} s")
            chunk = os.read(process.stdout.fileno(), 65536)
            if not chunk:
                raise self._failed("has ended")
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _failed(self, what: str) -> WorkerFailed:
        tail = self._log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return WorkerFailed("\n".join([f"the worker {what}", *tail]))
