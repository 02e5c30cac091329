"""LocalEnsemble: a real ZooKeeper of one's own."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from zkfence_receivers.testing import ServerFailed
from zkfence_receivers.testing._ports import LOOPBACK, free_ports, with_free_ports
from zkfence_receivers.testing._process import ServerProcess
from zkfence_receivers.testing._wait import wait_until
from zkfence_receivers.testing._workspace import Workspace

from ._installation import Installation, find_installation
from ._node import LocalNode

if TYPE_CHECKING:
    from kazoo.client import KazooClient

# Small and quick to start: a server of a test lives for seconds.
_JVM_OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.io.tmpdir=.")
_START_TIMEOUT: Final = 60.0


class LocalEnsemble:
    """Real ZooKeeper servers on free loopback ports: one alone, or a replicated ensemble of three (or five …).

    ::

        with LocalEnsemble(nodes=3) as ensemble, zkfence.connect(ensemble.hosts) as zk:
            ensemble.leader().kill()
            ensemble.wait_for_quorum()
            with FencedLock(zk, "reports/7") as grant: ...

    `close`, or the end of the ``with`` block, kills the servers and removes their folder; an interpreter that ends
    without it, even by SIGKILL, leaves neither behind. Not to be shared by threads.

    :param nodes: how many servers.
    :param classpath: the ZooKeeper to run, as ``java -cp`` takes it. Without it: the environment's
        ``ZKFENCE_ZOOKEEPER_CLASSPATH``, else the release in ``ZOOKEEPER_HOME``, else Debian's ``libzookeeper-java``.
    :param tick_time: ZooKeeper's unit of time, in seconds. Short, so that sessions end and leaders are replaced
        quickly: sessions are expired on a grid of ticks.
    :param sync_limit: how many ticks a follower may be silent before its leader gives it up, and the other way round.
    :param min_session_timeout: in seconds; shorter wishes of a client are raised to it.
    :param max_session_timeout: in seconds; longer ones are lowered to it. (ZooKeeper's own default, 20 ticks, would be
        4 seconds here.)
    :param durable: whether a change is on disk before it is acknowledged (``forceSync``). Without it the tests run
        faster, and a killed *machine* may lose changes; a killed server does not.
    :param heap: the memory of each server, as ``java -Xmx`` takes it.
    :param config: further lines of ``zoo.cfg``, or other values for those that are there.
    :param jvm_options: further options for ``java``, such as ``-Djute.maxbuffer=…``.

    `start` and the ``with`` block raise `ServerNotFound` where the machine has no Java or no ZooKeeper, and
    `ServerFailed` with the end of the log of a server that does not start.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        classpath: str | None = None,
        tick_time: float = 0.2,
        sync_limit: int = 10,
        min_session_timeout: float = 0.4,
        max_session_timeout: float = 60.0,
        durable: bool = True,
        heap: str = "64m",
        config: Mapping[str, str | int] | None = None,
        jvm_options: Sequence[str] = (),
    ) -> None:
        if nodes < 1:
            raise ValueError(f"an ensemble has at least one server, not {nodes}")
        self._size = nodes
        self._classpath = classpath
        self._config: dict[str, str | int] = {
            "tickTime": _milliseconds(tick_time),
            "initLimit": 50,
            "syncLimit": sync_limit,
            "minSessionTimeout": _milliseconds(min_session_timeout),
            "maxSessionTimeout": _milliseconds(max_session_timeout),
            "maxClientCnxns": 0,  # every client of a test comes from one address
            "forceSync": "yes" if durable else "no",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            **(config or {}),
        }
        self._jvm_options = (f"-Xmx{heap}", *_JVM_OPTIONS, *jvm_options)
        self._workspace: Workspace | None = None
        self._nodes: list[LocalNode] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self) -> None:
        """Start all servers, and wait until each of them serves."""
        if self._workspace is not None:
            raise ServerFailed("this ensemble was started before; restart() starts it again")
        installation = find_installation(self._classpath)
        with_free_ports(lambda: self._start_anew(installation))

    def close(self) -> None:
        """Kill the servers and remove their folder. A second call does nothing; `start` begins afresh."""
        if self._workspace is not None:
            self._workspace.close()
            self._workspace = None
            self._nodes = []

    @property
    def nodes(self) -> Sequence[LocalNode]:
        """The servers; each can be paused, resumed, killed, stopped and restarted."""
        if not self._nodes:
            raise ServerFailed("this ensemble was not started: use it as `with LocalEnsemble() as ensemble:`")
        return self._nodes

    @property
    def hosts(self) -> str:
        """The connection string of the whole ensemble: ``127.0.0.1:port,127.0.0.1:port``."""
        return ",".join(node.address for node in self.nodes)

    def leader(self, timeout: float = 30.0) -> LocalNode:
        """The server that leads (or the only one), as soon as there is one. Raises `ServerFailed` after ``timeout``
        seconds without any.
        """
        leader = wait_until(self._find_leader, timeout)
        if leader is None:
            raise ServerFailed(f"the ensemble has had no leader for {timeout:g} s", self._logs())
        return leader

    def followers(self) -> list[LocalNode]:
        """The servers that follow a leader at this moment."""
        return [node for node in self.nodes if node.role() == "follower"]

    def wait_for_quorum(self, timeout: float = 30.0) -> None:
        """Wait until the ensemble has really served a client: a majority has agreed to open a session for it.

        Raises `ServerFailed` after ``timeout`` seconds. A server that was just restarted may still be on its way:
        `LocalNode.wait_until_serving`.
        """
        deadline = time.monotonic() + timeout
        while not self._serves_a_client(max(0.0, deadline - time.monotonic())):
            if time.monotonic() >= deadline:
                raise ServerFailed(f"the ensemble has served no client for {timeout:g} s", self._logs())

    @contextlib.contextmanager
    def client(
        self,
        *,
        session_timeout: float = 10.0,
        connect_timeout: float = 15.0,
        **options: Any,
    ) -> Iterator[KazooClient]:
        """A started KazooClient, for a ``with`` block: its end ends the session.

        Both timeouts are in seconds; ``options`` go to ``KazooClient``. It comes back quickly after an outage (kazoo's
        own pause between two attempts grows to a minute). Raises kazoo's ``KazooTimeoutError`` where no server has
        answered within ``connect_timeout``.
        """
        from kazoo.client import KazooClient

        patience = {"max_tries": -1, "delay": 0.05, "max_delay": 0.5}
        client = KazooClient(
            **{"hosts": self.hosts, "timeout": session_timeout, "connection_retry": patience, **options}
        )
        client.start(timeout=connect_timeout)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def stop(self) -> None:
        """End all servers in an orderly way. The folder stays: `restart` finds the data."""
        for node in self.nodes:
            node.stop()

    def restart(self) -> None:
        """Stop all servers and start them again with the same data and ports, and wait until each of them serves."""
        self.stop()
        self._start_nodes()

    def _start_anew(self, installation: Installation) -> None:
        self._workspace = Workspace("zookeeper")
        try:
            self._nodes = self._lay_out(self._workspace, installation)
            self._start_nodes()
        except BaseException:
            self.close()
            raise

    def _start_nodes(self) -> None:
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait_until_up(_START_TIMEOUT)
        for node in self.nodes:
            node.wait_until_serving(_START_TIMEOUT)

    def _lay_out(self, workspace: Workspace, installation: Installation) -> list[LocalNode]:
        """A folder with a configuration for each server."""
        ports = free_ports(3 * self._size)
        client_ports, peer_ports = ports[: self._size], ports[self._size :]
        peers = {
            f"server.{number}": f"{LOOPBACK}:{quorum}:{election}"
            for number, (quorum, election) in enumerate(zip(peer_ports[::2], peer_ports[1::2], strict=True), 1)
        }
        nodes = []
        for number, port in enumerate(client_ports, 1):
            process = ServerProcess(workspace, f"node-{number}")
            data = process.folder / "data"
            data.mkdir()
            (data / "myid").write_text(f"{number}\n")
            configuration = process.folder / "zoo.cfg"
            own = {"dataDir": data, "clientPortAddress": LOOPBACK, "clientPort": port}
            _write_properties(configuration, {**own, **(peers if self._size > 1 else {}), **self._config})
            nodes.append(LocalNode(process, port, self._command(installation, configuration)))
        return nodes

    def _command(self, installation: Installation, configuration: Path) -> list[str]:
        main = "quorum.QuorumPeerMain" if self._size > 1 else "ZooKeeperServerMain"
        return [
            installation.java,
            *self._jvm_options,
            "-cp",
            installation.classpath,
            f"org.apache.zookeeper.server.{main}",
            str(configuration),
        ]

    def _find_leader(self) -> LocalNode | None:
        leaders = [node for node in self.nodes if node.role() in ("leader", "standalone")]
        # One that was deposed while it was paused still says that it leads, with an older epoch.
        return max(leaders, key=LocalNode.epoch, default=None)

    def _serves_a_client(self, timeout: float) -> bool:
        """One attempt, which asks only servers that answer: a paused one would keep the client waiting."""
        serving = wait_until(lambda: [node.address for node in self.nodes if node.role() is not None], timeout)
        if not serving:
            return False
        from kazoo.handlers.threading import KazooTimeoutError

        silent = logging.Logger("zkfence.testing", logging.CRITICAL)  # failing is what an attempt may do
        client = self.client(hosts=",".join(serving), connect_timeout=timeout, logger=silent)
        with contextlib.suppress(KazooTimeoutError), client:
            return True
        return False

    def _logs(self) -> str:
        return "\n".join(f"[{node.name}]\n{node.log_tail()}" for node in self.nodes)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _write_properties(path: Path, properties: Mapping[str, object]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
