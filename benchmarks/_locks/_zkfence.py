"""zkfence as a contender, with each of the two clients."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

from kazoo.client import KazooClient

import zkfence

from ._crowd import LockClient

NAMESPACE: Final = "/bench-zkfence"


class _FencedLocks(LockClient):
    def __init__(self, zk: KazooClient) -> None:
        self._zk = zk
        self._locks: dict[str, zkfence.FencedLock] = {}

    def lock(self, name: str) -> AbstractContextManager[object]:
        # Threads share a FencedLock, as its documentation says. (setdefault, since they ask for it at the same time.)
        return self._locks.setdefault(name, zkfence.FencedLock(self._zk, name, namespace=NAMESPACE))

    def close(self) -> None:
        self._zk.stop()
        self._zk.close()


class ConnectedFencedLocks(_FencedLocks):
    """On the client that zkfence.connect makes."""

    def __init__(self, hosts: str, session_timeout: float) -> None:
        super().__init__(zkfence.connect(hosts, session_timeout=session_timeout))


class StockFencedLocks(_FencedLocks):
    """On kazoo's client as it is."""

    def __init__(self, hosts: str, session_timeout: float) -> None:
        zk = KazooClient(hosts, timeout=session_timeout)
        zk.start()
        super().__init__(zk)
