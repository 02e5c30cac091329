"""Session: one kazoo client, as zkfence needs it. The one object that knows about liveness."""

from __future__ import annotations

import logging
import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol
from weakref import WeakValueDictionary

from kazoo.client import KazooClient
from kazoo.protocol.states import EventType, KazooState, WatchedEvent

from . import _clock
from ._connection._quick import quick
from ._core._attempt import Attempt
from ._errors import ForkedError, NotConnected
from ._heartbeat import Heartbeat
from ._holding import Holding
from ._kazoo import Kazoo, is_closed, is_ready
from ._lease import Lease
from ._ledger import Ledger
from ._session_timeout import session_timeout_of
from ._threads import lose, verify

_log: Final = logging.getLogger("zkfence")


class Waker(Protocol):
    """Something that waits for changes."""

    def changed(self, path: str) -> None:
        """The watch on ``path`` has fired; with an empty path, the connection has changed. Called on kazoo's threads:
        must not block."""


class Session:
    """Follows the state of a client, hands out its watch events, and runs what has to be done in the background.

    kazoo calls state listeners on its connection thread, which must never wait for a reply: there, this class only
    wakes others and starts threads.
    """

    _of_client: Final[WeakValueDictionary[int, Session]] = WeakValueDictionary()
    _registry = threading.Lock()

    def __init__(self, client: KazooClient) -> None:
        self.client = client
        self.kazoo = Kazoo(client, self._watch)
        self.ledger = Ledger()
        self.leaving: deque[Attempt] = deque()  # to be left in the background
        self.changing = threading.Lock()  # for every holding: it is held for moments only
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._wakers: dict[str, set[Waker]] = defaultdict(set)
        self._held: dict[str, Holding] = {}
        self._owned: dict[object, dict[str, tuple[Holding, ...]]] = {}  # tuples are small
        self._errands: deque[Callable[[], None]] = deque()
        self._errands_running = False
        self._session_id: int | None = None
        self._connection = 0
        self._lease = Lease()
        self._told_timeout: float | None = None
        self._timeout = session_timeout_of(client, None)
        self._heartbeat = Heartbeat(self)
        now = self.now()
        self._apart_at = now if self.closed else float("-inf")  # no connection was being made yet at this moment
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

    @classmethod
    def _forked(cls) -> None:
        """In a forked child: whoever held these locks is not there."""
        cls._registry = threading.Lock()
        for session in list(cls._of_client.values()):
            session.changing, session._lock = threading.Lock(), threading.Lock()

    # --- what the protocol may know (Surroundings) --------------------------------------------------------------

    @property
    def session_id(self) -> int | None:
        return self._session_id

    @property
    def connection(self) -> int:
        return self._connection

    @property
    def session_timeout(self) -> float:
        return self._timeout.seconds

    def now(self) -> float:
        return _clock.now()

    def remaining(self) -> float:
        return self.deadline - self.now()

    def book(self, attempt: Attempt, path_length: int) -> Ledger:
        """Room for one more ephemeral node; raises `TooManyLocks`. Tells where it is to be cancelled."""
        ledger = self.ledger
        ledger.book(attempt, attempt.lock_name, len((self.client.chroot or "").encode()) + path_length)
        return ledger

    # --- liveness -----------------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """The moment until which the session surely lives if nothing more is heard; ``-inf``: nothing is proved yet."""
        return self._lease.ends_at(self.session_timeout)

    @property
    def deadline_is_verified(self) -> bool:
        """Whether the session timeout is the one that the servers have granted."""
        return self._timeout.is_verified

    def tell_timeout(self, seconds: float) -> None:
        """The user says what the servers grant; of several words, the shortest counts."""
        with self._lock:
            self._told_timeout = min(seconds, self._told_timeout or seconds)
            self._timeout = session_timeout_of(self.client, self._told_timeout)

    def proved(self, sent_at: float) -> None:
        """A quorum write of the present session that was sent at this moment was acknowledged, just now."""
        self._lease.proved(sent_at, self.now(), self.session_timeout)

    def idle(self) -> None:
        """Nobody holds or waits, so that nothing will be proved for a while."""
        self._lease.idle()

    def beat_due_at(self) -> float:
        """When something has to be proved again, while somebody holds or waits."""
        return self._lease.beat_due_at(self.session_timeout)

    @property
    def closed(self) -> bool:
        """Nothing can be answered any more, until somebody starts the client."""
        return is_closed(self.client)

    @property
    def ready(self) -> bool:
        """Connected to a server that can write."""
        return is_ready(self.client)

    @property
    def in_use(self) -> bool:
        """Somebody holds or waits."""
        return bool(self._held or self._wakers.get(""))

    def check_usable(self, lock_name: str) -> None:
        """Raise `ForkedError` in a forked child, `NotConnected` where the client is closed."""
        if os.getpid() != self.pid:
            raise ForkedError(lock_name)
        if self.closed:
            raise NotConnected(
                "the ZooKeeper client is not started, or is closed: call start() first, or use zkfence.connect()"
            )

    # --- watches ------------------------------------------------------------------------------------------------

    @quick
    def _watch(self, event: WatchedEvent) -> None:
        """kazoo tells of a node that was watched; without a path, that the watches went with the connection."""
        path = event.path
        if not path:
            self._wake("")
            return
        self._wake(path)
        held = self._held.get(path)
        if held is not None:
            if event.type == EventType.DELETED:
                lose(self, held, path)
            else:
                self._verify([held])

    def _wake(self, path: str) -> None:
        with self._lock:
            wakers = list(self._wakers.get(path, ()))
        for waker in wakers:
            try:
                waker.changed(path)
            except Exception:  # no thread to be had: the others, and those who hold, have to be told all the same
                _log.exception("one that waits for a lock could not be told of a change")

    def subscribe(self, path: str, waker: Waker) -> None:
        """Tell ``waker`` when the watch on ``path`` fires; for an empty path, when the connection changes."""
        with self._lock:
            self._wakers[path].add(waker)
        if not path:
            self._heartbeat.start()

    def unsubscribe(self, paths: Iterable[str], waker: Waker) -> None:
        with self._lock:
            for path in paths:
                wakers = self._wakers[path]
                wakers.discard(waker)
                if not wakers:
                    del self._wakers[path]

    # --- grants -------------------------------------------------------------------------------------------------

    @property
    def held(self) -> Sequence[Holding]:
        with self._lock:
            return list(dict.fromkeys(self._held.values()))

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def hold(self, holding: Holding) -> None:
        """Tell the holding when it is lost, which it is at once if its session is over by now, or its deadline has
        passed. Its nodes must be watched already."""
        with self._lock:
            alive = all(attempt.session_id == self._session_id for attempt in holding.attempts)
            if alive:
                for attempt in holding.attempts:
                    self._held[attempt.path] = holding
                of_owner = self._owned.setdefault(holding.owner, {})
                of_owner[holding.lock_path] = (*of_owner.get(holding.lock_path, ()), holding)
        if not alive:
            holding.session_over()
        elif self.remaining() <= 0:  # the process stood still since the session was proved
            holding.lease_over()
        else:
            self._heartbeat.start()

    def drop(self, holding: Holding) -> None:
        """The holding is over, and so are its nodes, or soon: nothing more to tell it."""
        self.watch_no_more(holding)
        with self._lock:
            of_owner = self._owned.get(holding.owner, {})
            same = of_owner.get(holding.lock_path, ())
            if holding in same:
                others = tuple(each for each in same if each is not holding)
                if others:
                    of_owner[holding.lock_path] = others
                else:
                    del of_owner[holding.lock_path]
                    if not of_owner:
                        del self._owned[holding.owner]

    def watch_no_more(self, holding: Holding) -> None:
        """The holding is over, but its nodes may be there as long as the session."""
        with self._lock:
            for path in [path for path in holding.paths if self._held.get(path) is holding]:
                del self._held[path]

    def held_by(self, owner: object, lock_path: str) -> Sequence[Holding]:
        """What a thread or task holds of one lock, or has lost at a deadline and not released."""
        with self._lock:
            return self._owned.get(owner, {}).get(lock_path, ())

    # --- state --------------------------------------------------------------------------------------------------

    def _learn_id(self) -> None:
        client_id = self.client.client_id
        if client_id is not None:
            self._session_id = client_id[0]

    def _state_changed(self, state: str) -> None:
        with self._lock:
            if state == KazooState.CONNECTED:
                before = self._session_id
                self._learn_id()
                self._timeout = session_timeout_of(self.client, self._told_timeout)
                if before != self._session_id:
                    self._lease, self.ledger = Lease(), Ledger()
                self._lease.connected(self._apart_at, self.now())
            else:
                self._apart_at = self.now()
                self._connection += 1
            if state == KazooState.LOST:
                self._session_id = None
                self._owned.clear()
        held = self.held
        self._wake("")
        self._heartbeat.connection_changed()
        if state == KazooState.LOST:
            for holding in held:
                self.drop(holding)
                holding.session_over()
        elif state == KazooState.CONNECTED and held:
            self._verify(held)

    # --- errands ------------------------------------------------------------------------------------------------

    def run_errand(self, errand: Callable[[], None], *, first: bool = False) -> None:
        """Run ``errand`` soon, in the background, one after another; with ``first``, before those that wait already.

        The thread ends when there is nothing to do.
        """
        with self._lock:
            if first:
                self._errands.appendleft(errand)
            else:
                self._errands.append(errand)
            if self._errands_running:
                return
            try:
                self._errands_running = True
                self.client.handler.spawn(self._run_errands)
            except BaseException:  # no thread to be had, or Ctrl-C: the next errand tries again
                self._errands_running = False
                raise

    def _verify(self, holdings: Sequence[Holding]) -> None:
        """Have it looked whether the nodes are still there: a holder waits for it, unlike for a node to go."""
        self.run_errand(partial(verify, self, holdings), first=True)

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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Session._forked)
