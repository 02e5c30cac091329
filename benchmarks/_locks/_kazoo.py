"""kazoo's own Lock as a contender, on kazoo's client as it is."""

from __future__ import annotations

from contextlib import AbstractContextManager

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock

from ._crowd import LockClient


class KazooLocks(LockClient):
    def __init__(self, hosts: str, session_timeout: float) -> None:
        self._zk = KazooClient(hosts, timeout=session_timeout)
        self._zk.start()

    def lock(self, name: str) -> AbstractContextManager[object]:
        return Lock(self._zk, f"/bench-kazoo/{name}")  # one object for each thread, as its documentation says

    def close(self) -> None:
        self._zk.stop()
        self._zk.close()
