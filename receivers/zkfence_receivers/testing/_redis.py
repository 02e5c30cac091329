"""LocalRedis: a real Redis server of one's own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from ._errors import ServerFailed, ServerNotFound
from ._ports import LOOPBACK, free_ports, with_free_ports
from ._process import ServerProcess
from ._workspace import Workspace

if TYPE_CHECKING:
    import redis

EXECUTABLE_VARIABLE: Final = "ZKFENCE_REDIS_SERVER"
_PROBE_TIMEOUT: Final = 1.0

# What a RedisReceiver asks of a server that it can trust.
_SAFE: Final[Mapping[str, str]] = {
    "appendonly": "yes",
    "appendfsync": "always",
    "maxmemory-policy": "noeviction",
    "save": "",
}


class LocalRedis:
    """A real ``redis-server`` on a free loopback port, with a temporary folder of its own.

    ::

        with LocalRedis() as server:
            receiver = RedisReceiver(server.client())

    Durable unless told otherwise: ``appendonly yes``, ``appendfsync always``, ``maxmemory-policy noeviction``, no
    snapshots. ``config`` has further lines of ``redis.conf``, or other values for these. A Valkey server does as well.

    `close`, or the end of the ``with`` block, kills the server and removes the folder; an interpreter that ends
    without it, even by SIGKILL, leaves neither behind. Not to be shared by threads.

    :param config: names and values as in ``redis.conf``; a value with blanks is several arguments, as there.
    :param executable: the server's binary; without it, the environment's ``ZKFENCE_REDIS_SERVER``, then
        ``redis-server`` and ``valkey-server`` on the ``PATH``.

    `start` and the ``with`` block raise `ServerNotFound` or `ServerFailed`.
    """

    def __init__(
        self, *, config: Mapping[str, str | int] | None = None, executable: str | os.PathLike[str] | None = None
    ) -> None:
        self._config: dict[str, str | int] = {**_SAFE, **(config or {})}
        self._executable = executable
        self._workspace: Workspace | None = None
        self._process: ServerProcess | None = None
        self._command: list[str] = []
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        if self._workspace is not None:
            raise ServerFailed("this Redis server was started before; restart() starts it again")
        binary = find_redis_server(self._executable)
        with_free_ports(lambda: self._start_anew(binary))

    def close(self) -> None:
        """Kill the server and remove its folder. A second call does nothing; `start` begins afresh."""
        if self._workspace is not None:
            self._workspace.close()
            self._workspace = self._process = None

    @property
    def host(self) -> str:
        """The address that it listens on: ``127.0.0.1``."""
        return LOOPBACK

    @property
    def port(self) -> int:
        """The port that it listens on; a restart keeps it."""
        self._started()
        return self._port

    @property
    def url(self) -> str:
        """Where it is, as ``redis.from_url`` takes it (without a password)."""
        return f"redis://{self.host}:{self.port}/0"

    @property
    def folder(self) -> Path:
        """Its temporary folder: ``redis.conf``, the log, the append-only file."""
        return self._started().folder

    @property
    def running(self) -> bool:
        """Whether there is a process, paused or not."""
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._started().pid

    def client(self, **options: Any) -> redis.Redis:
        """A new ``redis.Redis`` for this server; ``options`` go to its constructor. Close it when you are done.

        Raises ImportError where redis-py is missing: it is in the extra ``zkfence[redis]``.
        """
        try:
            import redis
        except ImportError as error:
            raise ImportError("redis-py is not installed: pip install 'zkfence[redis]'") from error
        return redis.Redis(**{"host": self.host, "port": self.port, "password": self._password, **options})

    def wait_until_ready(self, timeout: float = 10.0) -> None:
        """Wait until this server, and no other one, answers and has loaded its data.

        Raises `ServerFailed` with the end of its log where it has ended or does not answer in time.
        """
        self._started().wait_until_ready(self._answers, timeout)

    def pause(self) -> None:
        """Stop the server in its tracks (SIGSTOP): connections stay open and nobody answers."""
        self._started().pause()

    def resume(self) -> None:
        """Let a paused server go on (SIGCONT)."""
        self._started().resume()

    def kill(self) -> None:
        """End the server without warning (SIGKILL), paused or not. Its folder stays: `restart` finds the data."""
        self._started().kill()

    def stop(self) -> None:
        """End the server in an orderly way (SIGTERM). Its folder stays: `restart` finds the data."""
        self._started().stop()

    def restart(self) -> None:
        """Start the server again, with the same folder and port, and wait until it answers; a running one is stopped
        first.
        """
        process = self._started()
        process.stop()
        process.start(self._command)
        self.wait_until_ready()

    def _start_anew(self, binary: str) -> None:
        self._workspace = Workspace("redis")
        try:
            self._process = ServerProcess(self._workspace, "redis")
            [self._port] = free_ports(1)
            configuration = self._process.folder / "redis.conf"
            configuration.write_text(self._configuration())
            self._command = [binary, str(configuration)]
            self._process.start(self._command)
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise

    def _configuration(self) -> str:
        lines = {"bind": self.host, "port": self._port, "dir": ".", **self._config}
        return "".join(f"{name} {_quoted(value)}\n" for name, value in lines.items())

    @property
    def _password(self) -> str | None:
        password = self._config.get("requirepass")
        return None if password is None else str(password)

    def _answers(self, pid: int) -> bool:
        """Whether what listens on the port is this process, and it has loaded its data."""
        authenticate = f"AUTH {self._password}\r\n" if self._password else ""
        answer = _ask(self._port, f"{authenticate}INFO\r\nQUIT\r\n")
        return f"process_id:{pid}\r\n" in answer and "\nloading:0\r\n" in answer  # not async_loading

    def _started(self) -> ServerProcess:
        if self._process is None:
            raise ServerFailed("this Redis server was not started: use it as `with LocalRedis() as server:`")
        return self._process


def find_redis_server(executable: str | os.PathLike[str] | None = None) -> str:
    """The path of the server's binary. Raises `ServerNotFound`, which says what to install."""
    asked = executable or os.environ.get(EXECUTABLE_VARIABLE)
    for name in [asked] if asked else ["redis-server", "valkey-server"]:
        if path := shutil.which(name):
            return path
    looked_for = f"{os.fspath(asked)!r}" if asked else "neither 'redis-server' nor 'valkey-server'"
    raise ServerNotFound(
        f"No Redis server: {looked_for} was found on the PATH. Install one (Debian, Ubuntu: "
        "`apt install redis-server`; macOS: `brew install redis`), or name the binary in the environment's "
        f"{EXECUTABLE_VARIABLE}"
    )


def _quoted(value: str | int) -> str:
    return '""' if value == "" else str(value)


def _ask(port: int, request: str) -> str:
    """One exchange in Redis's inline protocol: it works without redis-py, which is an extra."""
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), _PROBE_TIMEOUT) as connection:
        connection.sendall(request.encode())
        while chunk := connection.recv(65536):
            answer += chunk
    return answer.decode(errors="replace")
