"""Removing the demo's namespace from somebody's ZooKeeper."""

from __future__ import annotations

import time
from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError, NotEmptyError
from kazoo.interfaces import IAsyncResult

_TIMEOUT: Final = 10.0  # seconds, for all of it


def remove_namespace(zk: KazooClient, path: str) -> None:
    """Delete a node and everything below it. A node that is gone already is fine.

    Raises kazoo's errors, its timeout among them: at an end that must come, nobody waits for a server for ever.
    """
    _remove(zk, path, time.monotonic() + _TIMEOUT)


def _remove(zk: KazooClient, path: str, deadline: float) -> None:
    def answer(result: IAsyncResult) -> object:
        return result.get(timeout=max(0.0, deadline - time.monotonic()))

    while True:
        try:
            children = answer(zk.get_children_async(path))
            assert isinstance(children, list)
            for child in children:
                _remove(zk, f"{path}/{child}", deadline)
            answer(zk.delete_async(path))
        except NoNodeError:
            return
        except NotEmptyError:
            continue  # a last order of a worker that was killed has arrived meanwhile
        return
