"""Session: one kazoo client, as zkfence needs it. The one object that knows about liveness."""

from __future__ import annotations

import logging
import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Final, Protocol
from weakref import WeakValueDictionary

from kazoo.client import KazooClient
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent

from . import _clock
from ._errors import ForkedError, NotConnected

_log: Final = logging.getLogger("zkfence")
_SESSION_OVER: Final = "the ZooKeeper session is over"


class Held(Protocol):
    """A grant, as its session sees it."""

    @property
    def path(self) -> str: ...

    def _lose(self, reason: str) -> None:
        """It is lost. Called on any thread, kazoo's among them: must not block."""

    def _verify(self) -> None:
        """Look whether the node is still there, and watch it again. Called in the background."""


class Waker(Protocol):
    """Something that waits, and looks again when it is set."""

    def set(self) -> None: ...


class Session:
    """Follows the state of a client, hands out its watch events, and runs what has to be done in the background.

    kazoo calls state listeners on its connection thread, which must never wait for a reply: there, this class only sets
    events and starts threads.
    """

    _of_client: Final[WeakValueDictionary[int, Session]] = WeakValueDictionary()
    _registry: Final = threading.Lock()

    def __init__(self, client: KazooClient) -> None:
        self.client = client
        self._lock = threading.Lock()
        self._wakers: dict[str, set[Waker]] = defaultdict(set)
        self._held: dict[str, Held] = {}
        self._errands: deque[Callable[[], None]] = deque()
        self._errands_running = False
        self._session_id: int | None = None
        self._connection = 0
        self._pid = os.getpid()
        client.add_listener(self._state_changed)
        if client.state == KazooState.CONNECTED:
            self._learn_id()

    @classmethod
    def of(cls, client: KazooClient) -> Session:
        """The one session object of a client."""
        with cls._registry:
            session = cls._of_client.get(id(client))
            if session is None:
                session = cls._of_client[id(client)] = cls(client)
            return session

    @classmethod
    def all(cls) -> list[Session]:
        """The sessions of this process that locks were made with, and that somebody still refers to."""
        with cls._registry:
            return list(cls._of_client.values())

    # --- what the protocol may know (Surroundings) --------------------------------------------------------------

    @property
    def session_id(self) -> int | None:
        return self._session_id

    @property
    def connection(self) -> int:
        return self._connection

    @property
    def session_timeout(self) -> float:
        return float(self.client._session_timeout) / 1000

    def now(self) -> float:
        return _clock.now()

    @property
    def closed(self) -> bool:
        """Nothing can be answered any more, until somebody starts the client."""
        return self.client.client_state in (KeeperState.CLOSED, KeeperState.AUTH_FAILED)

    def check_usable(self, lock_name: str) -> None:
        """Raise `ForkedError` in a forked child, `NotConnected` where the client is closed."""
        if os.getpid() != self._pid:
            raise ForkedError(lock_name)
        if self.closed:
            raise NotConnected(
                "the ZooKeeper client is not started, or is closed: call start() first, or use zkfence.connect()"
            )

    # --- watches ------------------------------------------------------------------------------------------------

    def watch(self, event: WatchedEvent) -> None:
        """The one watcher that is given to kazoo, for every path: however often a node is watched, it is kept once."""
        path = event.path
        with self._lock:
            wakers = list(self._wakers.get(path, ())) if path else self._all_wakers()
            held = self._held.get(path) if path else None
        for waker in wakers:
            waker.set()
        if held is not None:
            if event.type == EventType.DELETED:
                self.drop(held)
                held._lose("its node was deleted")
            else:
                self.run_errand(held._verify)

    def subscribe(self, path: str, waker: Waker) -> None:
        with self._lock:
            self._wakers[path].add(waker)

    def unsubscribe(self, path: str, waker: Waker) -> None:
        with self._lock:
            self._wakers[path].discard(waker)
            if not self._wakers[path]:
                del self._wakers[path]

    def _all_wakers(self) -> list[Waker]:
        return [waker for wakers in self._wakers.values() for waker in wakers]

    # --- grants -------------------------------------------------------------------------------------------------

    def hold(self, grant: Held, session_id: int) -> None:
        """Tell the grant when it is lost, which it is at once if its session is over by now. Its node must be watched
        already."""
        with self._lock:
            alive = session_id == self._session_id
            if alive:
                self._held[grant.path] = grant
        if not alive:
            grant._lose(_SESSION_OVER)

    def drop(self, grant: Held) -> None:
        """The grant is over: nothing more to tell it."""
        with self._lock:
            if self._held.get(grant.path) is grant:
                del self._held[grant.path]

    # --- state --------------------------------------------------------------------------------------------------

    def _learn_id(self) -> None:
        client_id = self.client.client_id
        if client_id is not None:
            self._session_id = client_id[0]

    def _state_changed(self, state: str) -> None:
        with self._lock:
            if state == KazooState.CONNECTED:
                self._learn_id()
            else:
                self._connection += 1
            if state == KazooState.LOST:
                self._session_id = None
            held = list(self._held.values())
            wakers = self._all_wakers()
        for waker in wakers:
            waker.set()
        if state == KazooState.LOST:
            for grant in held:
                self.drop(grant)
                grant._lose(_SESSION_OVER)
        elif state == KazooState.CONNECTED:
            for grant in held:
                self.run_errand(grant._verify)

    # --- errands ------------------------------------------------------------------------------------------------

    def run_errand(self, errand: Callable[[], None]) -> None:
        """Run ``errand`` soon, in the background, one after another. The thread ends when there is nothing to do."""
        with self._lock:
            self._errands.append(errand)
            if self._errands_running:
                return
            try:
                self._errands_running = True
                self.client.handler.spawn(self._run_errands)
            except BaseException:  # no thread to be had, or Ctrl-C: the next errand tries again
                self._errands_running = False
                raise

    def _run_errands(self) -> None:
        while True:
            with self._lock:
                if not self._errands:
                    self._errands_running = False
                    return
                errand = self._errands.popleft()
            try:
                errand()
            except Exception:
                _log.exception("a background step of a lock failed")
