"""`zkfence demo` as users run it: a process whose children and temporary files can be told from those of others."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import sysconfig
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zkfence_receivers.testing._wait import wait_until

ZKFENCE = Path(sysconfig.get_path("scripts")) / "zkfence"
PATIENCE = 90.0

# Makes standard input the controlling terminal, so that a Ctrl-C that is typed there becomes SIGINT.
ON_A_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Demo:
    """One run. ``output`` is what it has written to its standard output, or to its terminal, so far."""

    def __init__(self, folder: Path, *arguments: str, terminal: bool = False, **environment: str) -> None:
        self.temp = folder / "tmp"
        self.temp.mkdir()
        self._errors = folder / "stderr"
        self._sign = f"ZKFENCE_TEST_RUN={uuid.uuid4().hex}"
        self.output = b""
        name, _, value = self._sign.partition("=")
        plain = {key: text for key, text in os.environ.items() if key not in ("COLUMNS", "FORCE_COLOR", "NO_COLOR")}
        variables = {**plain, "TMPDIR": str(self.temp), "TERM": "xterm-256color", **environment, name: value}
        command = [str(ZKFENCE), "demo", *arguments]
        theirs: int | None = None
        if terminal:
            self._reading, theirs = os.openpty()
            command = [sys.executable, "-c", ON_A_TERMINAL, *command]
        else:
            self._reading, theirs = os.pipe()
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=theirs if terminal else subprocess.DEVNULL,
                stdout=theirs,
                stderr=errors,
                env=variables,
                cwd=folder,
                start_new_session=True,
            )
        os.close(theirs)

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def read_until(self, text: str) -> None:
        """Wait until ``text`` has been written."""
        while text.encode() not in self.output:
            assert self._read(), f"it ended before it wrote {text!r}:\n{self.output.decode()}\n{self.errors}"

    def wait(self) -> int:
        """Read everything, wait for the end, and return the exit status."""
        while self._read():
            pass
        return self.process.wait(PATIENCE)

    def type(self, keys: bytes) -> None:
        os.write(self._reading, keys)

    def processes(self) -> list[int]:
        """Every process that was started by this run, itself included: they inherit its environment."""
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and self._is_ours(entry)]

    def leftovers(self) -> list[object]:
        """Processes, and files in the folder for temporary files."""
        return [*self.processes(), *self.temp.iterdir()]

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        os.close(self._reading)
        wait_until(lambda: not self.processes(), PATIENCE)

    def _read(self) -> bool:
        readable, _, _ = select.select([self._reading], [], [], PATIENCE)
        assert readable, f"nothing was written for {PATIENCE:g} s:\n{self.output.decode()}"
        try:
            chunk = os.read(self._reading, 65536)
        except OSError:  # a terminal that nobody has open any more
            return False
        self.output += chunk
        return bool(chunk)

    def _is_ours(self, entry: Path) -> bool:
        try:
            return self._sign.encode() in (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            return False


StartDemo = Callable[..., Demo]


@pytest.fixture(scope="module")
def start_demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartDemo]:
    """Starts a demo in folders of its own: ``start_demo("--json", terminal=True, PATH="")``."""
    with contextlib.ExitStack() as stack:

        def start(*arguments: str, terminal: bool = False, **environment: str) -> Demo:
            demo = Demo(tmp_path_factory.mktemp("demo"), *arguments, terminal=terminal, **environment)
            stack.callback(demo.close)
            return demo

        yield start
