"""LocalNode: one ZooKeeper server of a local ensemble."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

from zkfence_receivers.testing._ports import LOOPBACK
from zkfence_receivers.testing._process import ServerProcess, State

Role: TypeAlias = Literal["leader", "follower", "standalone"]
_ROLES: Final[dict[str, Role]] = {"leader": "leader", "follower": "follower", "standalone": "standalone"}
_PROBE_TIMEOUT: Final = 1.0


class LocalNode:
    """One server of a `LocalEnsemble`, which makes it; ``ensemble.nodes`` has them. Not to be shared by threads."""

    def __init__(self, process: ServerProcess, port: int, command: Sequence[str | Path]) -> None:
        self._process = process
        self._port = port
        self._command = command

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.address} {self._process.state.value}>"

    @property
    def name(self) -> str:
        """``node-1``, ``node-2`` …"""
        return self._process.name

    @property
    def port(self) -> int:
        """The port for clients; a restart keeps it."""
        return self._port

    @property
    def address(self) -> str:
        """Where clients find it, as a part of a connection string: ``127.0.0.1:port``."""
        return f"{LOOPBACK}:{self._port}"

    @property
    def folder(self) -> Path:
        """Its folder: ``zoo.cfg``, the log, and ``data`` with its transaction logs and snapshots."""
        return self._process.folder

    @property
    def running(self) -> bool:
        """Whether there is a process, paused or not."""
        return self._process.running

    @property
    def pid(self) -> int:
        """Its process id. Raises `ServerFailed` where it is not running."""
        return self._process.pid

    def role(self) -> Role | None:
        """What it says it is: ``"leader"``, ``"follower"`` or ``"standalone"``.

        ``None`` where it serves nobody: it is paused, it is down, or it has no quorum. A leader that was paused or cut
        off believes in itself until it notices: `LocalEnsemble.leader` knows the real one.
        """
        return _ROLES.get(self._says("srvr", "Mode: "))

    def pause(self) -> None:
        """Stop it in its tracks (SIGSTOP): connections stay open and nobody answers. Returns when it stands still."""
        self._process.pause()

    def resume(self) -> None:
        """Let a paused one go on (SIGCONT)."""
        self._process.resume()

    def kill(self) -> None:
        """End it without warning (SIGKILL), paused or not. Its folder stays: `restart` finds the data."""
        self._process.kill()

    def stop(self) -> None:
        """End it in an orderly way (SIGTERM). Its folder stays: `restart` finds the data."""
        self._process.stop()

    def restart(self, *, timeout: float = 60.0) -> None:
        """Start it again, with the same folder and ports; a running one is stopped first.

        Returns when it is up. It may serve only later, with a quorum: `wait_until_serving`.
        """
        self.stop()
        self.start()
        self.wait_until_up(timeout)

    def wait_until_serving(self, timeout: float = 30.0) -> None:
        """Wait until it serves clients, as a member of a quorum or alone. Raises `ServerFailed`."""
        self._process.wait_until_ready(lambda _: self.role() is not None, timeout)

    def start(self) -> None:
        """Start the process, and wait for nothing."""
        self._process.start(self._command)

    def wait_until_up(self, timeout: float = 60.0) -> None:
        """Wait until it answers on its port, with or without a quorum. Raises `ServerFailed`."""
        # Another server that has taken the port would answer too, but not from this folder.
        self._process.wait_until_ready(lambda _: self._says("envi", "user.dir=") == str(self.folder), timeout)

    def log_tail(self) -> str:
        """The last lines that it has logged since its last start."""
        return self._process.log_tail()

    def epoch(self) -> int:
        """The epoch of the last leader that it has heard of; 0 where it does not answer."""
        zxid = self._says("srvr", "Zxid: ")
        return int(zxid, 16) >> 32 if zxid else 0

    def _says(self, word: str, label: str) -> str:
        """What follows ``label`` in its answer to a four-letter word; empty where there is nothing of the kind."""
        for line in self._ask(word).splitlines():
            if line.startswith(label):
                return line.removeprefix(label).strip()
        return ""

    def _ask(self, word: str) -> str:
        if self._process.state is not State.RUNNING:
            return ""
        answer = b""
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, self._port), _PROBE_TIMEOUT) as server:
            server.sendall(word.encode())
            while chunk := server.recv(65536):
                answer += chunk
        return answer.decode(errors="replace")
