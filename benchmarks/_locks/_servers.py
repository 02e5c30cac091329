"""Servers: the ensemble that the contenders use, one after another."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Final, Self

from zkfence.testing import LocalEnsemble, LocalNode
from zkfence_receivers.testing._wait import wait_until

# A server of the tests is made to start quickly, and would never get warm: the last of two options counts.
_JVM_OPTIONS: Final = ("-XX:TieredStopAtLevel=4",)
_HEAP: Final = "512m"
_TICK: Final = 2.0  # seconds; ZooKeeper's own default
_SNAPSHOT_EVERY: Final = 10_000_000  # transactions: none during a run, where it would hit one contender of many
_PROBE_TIMEOUT: Final = 5.0


class Servers:
    """One server, or a replicated ensemble. Every contender talks to the same server, in an ensemble to a follower:
    chance must not decide who is closer to the leader."""

    def __init__(self, count: int, *, fsync: bool) -> None:
        self.count = count
        self._ensemble = LocalEnsemble(
            nodes=count,
            durable=fsync,
            heap=_HEAP,
            tick_time=_TICK,
            min_session_timeout=2 * _TICK,
            config={"snapCount": _SNAPSHOT_EVERY},
            jvm_options=_JVM_OPTIONS,
        )
        self._node: LocalNode | None = None

    def __enter__(self) -> Self:
        self._ensemble.start()
        self._node = self._ensemble.followers()[0] if self.count > 1 else self._ensemble.nodes[0]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ensemble.close()

    @property
    def title(self) -> str:
        return "1 server" if self.count == 1 else f"{self.count} servers, through a follower"

    @property
    def hosts(self) -> str:
        return self._serving.address

    @property
    def port(self) -> int:
        return self._serving.port

    @property
    def version(self) -> str:
        return self._says("srvr", "Zookeeper version:").split("-")[0]

    def wait_for_contenders(self, count: int, timeout: float) -> bool:
        """Wait until as many ephemeral nodes are there; tells whether they are."""
        return bool(wait_until(lambda: int(self._says("mntr", "zk_ephemerals_count")) == count, timeout))

    @property
    def _serving(self) -> LocalNode:
        assert self._node is not None
        return self._node

    def _says(self, word: str, label: str) -> str:
        with socket.create_connection(("127.0.0.1", self.port), _PROBE_TIMEOUT) as server:
            server.sendall(word.encode())
            with server.makefile(encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    if line.startswith(label):
                        return line.removeprefix(label).strip()
        raise OSError(f"the ZooKeeper server does not tell {label}")
