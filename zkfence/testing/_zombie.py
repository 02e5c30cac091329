"""Zombie: a worker process that is paused past the end of its session, and wakes up too late."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final, Protocol, Self

from zkfence_receivers.testing._signals import freeze, has_ended, thaw
from zkfence_receivers.testing._wait import wait_until
from zkfence_receivers.words import ZkfenceError

from ._contenders import FindNode

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_EVERY: Final = 0.05  # seconds between two looks at ZooKeeper


class HasPid(Protocol):
    """A ``subprocess.Popen``, a ``multiprocessing.Process``, a ``psutil.Process`` …"""

    @property
    def pid(self) -> int | None: ...


class ZombieError(ZkfenceError):
    """The worker could not be made a zombie: it has ended, had no such node, or its session did not end in time."""


class Zombie:
    """Turns a worker *process* of yours into a zombie, as a long garbage collection, a suspended machine or an
    overloaded host does, so that you can see what your storage says to it when it wakes up.

    ::

        worker = subprocess.Popen([sys.executable, "worker.py", ensemble.hosts])
        with Zombie(worker) as zombie, zkfence.connect(ensemble.hosts) as zk:
            zombie.pause_past_session(zk, holding("reports/7"))  # stopped in its tracks while it holds the lock
            with FencedLock(zk, "reports/7") as grant:           # its session is over: the lock is free
                store.claim("report-7", grant).write(b"new")
            zombie.resume()                                      # it may still believe that it holds the lock
            worker.wait()
            assert store.claim("report-7", later_grant).read() == b"new"

    ``process`` is a process id, or an object that has one as ``.pid``. It has to be the very process that owns the
    ZooKeeper session: not a shell or a launcher around it, and its children are not stopped with it. The end of the
    ``with`` block resumes it: no stopped process stays behind. A ``kill()`` of its own object ends it in any state.

    The pause is real (SIGSTOP): no co-operation of the worker is needed, and nothing tells it that there was one.
    """

    def __init__(self, process: int | HasPid) -> None:
        pid = process if isinstance(process, int) else process.pid
        if pid is None:
            raise ZombieError("the process has no pid yet: start it first")
        self.pid: Final[int] = pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(ZombieError):  # it has ended meanwhile: so much the better
            self.resume()

    def pause(self) -> None:
        """Stop it in its tracks, wherever it is. Returns when it stands still. Raises `ZombieError` if it has ended."""
        try:
            freeze(self.pid)
        except ProcessLookupError:
            raise self._has_ended() from None

    def resume(self) -> None:
        """Let it go on; one that is not paused does not mind. Raises `ZombieError` if it has ended."""
        try:
            thaw(self.pid)
        except ProcessLookupError:
            raise self._has_ended() from None

    def pause_past_session(
        self, zk: KazooClient, node: str | FindNode, *, timeout: float = 60.0, settle: float = 0.1
    ) -> str:
        """Pause it while it has an ephemeral node, and wait until ZooKeeper has ended the session of that node.

        ``node`` is the node's path, or a function that finds it: `holding` and `waiting` do so for a zkfence lock;
        your own is called as ``find(zk, pid)`` until it returns a path. ``zk`` is a started client with a session of
        its own.

        A node is in ZooKeeper a moment before its worker knows: it has to be there for ``settle`` seconds before the
        worker is stopped. That moment has no upper bound. Where the worker must have come to a certain point, let it
        leave a trace there (a file, another node), and look for that in a function of your own.
        A node that the worker removes just before it stands still does not count: it goes on, and the next one is
        awaited. ``timeout``, in seconds, is for all of it.

        Returns the path of the node. It is gone then, after a ``sync`` of ``zk``, and the worker is still paused.
        Raises `ZombieError`, with the worker resumed, if the time is up, the process has ended, or the node is not
        ephemeral.
        """
        deadline = time.monotonic() + timeout
        find: FindNode = (lambda zk, _: node if zk.exists(node) else None) if isinstance(node, str) else node
        try:
            path, session = self._pause_with_node(zk, find, settle, deadline)
            if not wait_until(lambda: _is_over(zk, path, session), deadline - time.monotonic(), every=_EVERY):
                raise ZombieError(
                    f"{path} is still there after {timeout:g} s: its session {session:#x} has a longer timeout, or "
                    f"another process than {self.pid} keeps it"
                )
        except BaseException:
            self.__exit__()
            raise
        return path

    def _pause_with_node(self, zk: KazooClient, find: FindNode, settle: float, deadline: float) -> tuple[str, int]:
        """Pause it while it has the node; the node's path, and the session that owns it."""
        while (left := deadline - time.monotonic()) > 0:
            path = wait_until(lambda: self._look_for(zk, find), left, every=_EVERY)
            time.sleep(settle)
            if path is None or self._look_for(zk, find) != path:
                continue
            self.pause()
            owner = _owner(zk, path)
            if owner == 0:
                raise ZombieError(f"{path} is not ephemeral: it does not end with a session")
            if owner is not None:
                return path, owner
            self.resume()
        raise ZombieError(f"process {self.pid} had no such node for long enough before the time was up")

    def _look_for(self, zk: KazooClient, find: FindNode) -> str | None:
        from kazoo.exceptions import ConnectionLoss

        if has_ended(self.pid):
            raise self._has_ended()
        with contextlib.suppress(ConnectionLoss):  # the servers are being tried too: look again
            zk.sync("/")
            return find(zk, self.pid)
        return None

    def _has_ended(self) -> ZombieError:
        return ZombieError(f"process {self.pid} has ended")


def _is_over(zk: KazooClient, path: str, session: int) -> bool:
    from kazoo.exceptions import ConnectionLoss

    with contextlib.suppress(ConnectionLoss):
        return _owner(zk, path) != session  # the path may already be another session's
    return False


def _owner(zk: KazooClient, path: str) -> int | None:
    """The session that owns a node, 0 where none does; ``None`` where there is no such node."""
    zk.sync("/")
    stat = zk.exists(path)
    return None if stat is None else stat.ephemeralOwner
