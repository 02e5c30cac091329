"""Finding the node with which a process holds a lock, or waits for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from kazoo.client import KazooClient

FindNode: TypeAlias = "Callable[[KazooClient, int], str | None]"
"""Finds the path of an ephemeral node of the process with this pid; ``None`` while there is none."""


def holding(lock_name: str, *, namespace: str = "/zkfence") -> FindNode:
    """Finds the node with which a process is the first in line for a lock: it holds it, or will in a moment.

    Made for `Zombie.pause_past_session`. Contenders tell their pid but not always which machine it is from: on an
    ensemble that other machines use too, one of theirs may have the same.
    """

    def find(zk: KazooClient, pid: int) -> str | None:
        first = next(_contenders(zk, lock_name, namespace), None)
        return first if first is not None and _pid_of(zk, first) == pid else None

    return find


def waiting(lock_name: str, *, namespace: str = "/zkfence") -> FindNode:
    """Finds the node with which a process waits for a lock, behind others. See `holding`."""

    def find(zk: KazooClient, pid: int) -> str | None:
        _, *behind = [*_contenders(zk, lock_name, namespace)] or [""]
        return next((path for path in behind if _pid_of(zk, path) == pid), None)

    return find


def _contenders(zk: KazooClient, lock_name: str, namespace: str) -> Iterator[str]:
    """The paths of a lock's contenders in line: by epoch, and by number in each."""
    from kazoo.exceptions import NoNodeError

    from zkfence._core._layout import CEILING, Layout, contenders_in, counter_path, epochs_in

    lock = Layout(namespace).lock(lock_name)
    try:
        for epoch in epochs_in(zk.get_children(lock)):
            path = counter_path(lock, epoch)
            for contender in sorted(contenders_in(zk.get_children(path))):
                if 0 <= contender.number < CEILING:
                    yield f"{path}/{contender.name}"
    except NoNodeError:
        return


def _pid_of(zk: KazooClient, path: str) -> object:
    """The pid in a contender's data; ``None`` where the node has gone meanwhile or says nothing of the kind."""
    from kazoo.exceptions import NoNodeError

    try:
        data, _ = zk.get(path)
        return json.loads(data).get("pid")
    except (NoNodeError, ValueError, AttributeError):
        return None
