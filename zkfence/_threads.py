"""The driver for threads: runs protocol steps on a kazoo client, with its handler's locks (gevent's too)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from kazoo.security import ACL

from ._bell import Bell
from ._core._attempt import Attempt
from ._core._leaving import leave, leave_all
from ._core._operations import (
    Effect,
    Flight,
    Get,
    Jitter,
    Landed,
    NoNode,
    Ready,
    SessionLost,
    Steps,
    Wait,
    land,
    read,
)
from ._errors import LockError, NotConnected
from ._landing import DeadlinePassed, lost, pause, prove, seconds_until

if TYPE_CHECKING:
    from ._holding import Holding
    from ._session import Session

_log: Final = logging.getLogger("zkfence")
# kazoo can lose a request for good, if it is queued in the very moment in which the session ends: once the connection
# has changed, an answer is not waited for much longer.
_PATIENCE: Final = 1.0  # seconds
_STEP: Final = 0.5  # seconds
_VERIFY_BATCH: Final = 100  # reads in one flight; kazoo's queue stalls above some 270
_LEAVE_BATCH: Final = 100

T = TypeVar("T")


class Driver:
    """Runs steps for one caller. Until it is left, it is told of the nodes that it has watched."""

    def __init__(self, session: Session, deadline: float | None, acl: Sequence[ACL] | None = None) -> None:
        """``deadline`` is a moment of the session's clock; ``None`` waits for ever."""
        self._session = session
        self._deadline = deadline
        self._acl = acl
        self._landed = Bell(session.client.handler)
        self._changed = Bell(session.client.handler)
        self._fired: set[str] = set()
        self._watched = {""}  # no node has an empty path: changes of the connection

    def __enter__(self) -> Self:
        self._session.subscribe("", self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.unsubscribe(self._watched, self)

    def changed(self, path: str) -> None:
        self._fired.add(path)
        self._changed.ring()

    @property
    def woken(self) -> bool:
        """Something that was watched has changed since the last `Wait` ended."""
        return self._changed.rings

    def run(self, steps: Steps[T]) -> T:
        """Run the steps to their end. Raises `DeadlinePassed`, and whatever the steps raise."""
        answer: Landed | set[str] | None = None
        try:
            while True:
                answer = self._do(steps.send(answer))
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            steps.close()

    def _do(self, effect: Effect) -> Landed | set[str] | None:
        match effect:
            case Flight():
                return self._fly(effect)
            case Ready():
                self._await_connection()
            case Wait():
                self._wait_for(self._changed)
                fired, self._fired = self._fired, set()
                return fired
            case Jitter(attempt):
                longest, remaining = pause(attempt), self._remaining()
                self._session.client.handler.sleep_func(longest if remaining is None else min(longest, remaining))
                self._remaining()
        return None

    def _fly(self, flight: Flight) -> Landed:
        session = self._session
        for operation in flight.operations:
            # Told from before the watch is placed, so that no event can fall between the two.
            if isinstance(operation, Get) and operation.watch and operation.path not in self._watched:
                self._watched.add(operation.path)
                session.subscribe(operation.path, self)
        if self._await_connection():
            return lost(session, flight)
        self._remaining()
        sent_at, session_id, connection = session.now(), session.session_id, session.connection
        answers = session.kazoo.send(flight.operations, self._acl, self._arrived)
        while not answers.complete:
            if not self._landed.wait(_shorter(self._remaining(), _PATIENCE)):
                self._remaining()
                if session.connection != connection:
                    answers.give_up()
        landed = Landed(sent_at, session.kazoo.results(flight.operations, answers))
        prove(session, session_id, flight, landed)
        return landed

    def _arrived(self, answers: object) -> None:
        self._landed.ring()

    def _await_connection(self) -> bool:
        """Wait until the client is connected; tells whether that was needed. Raises `NotConnected` if it is closed."""
        session = self._session
        if session.ready:
            return False
        changed = _Change(Bell(session.client.handler))  # not the one of `Wait`, which must not miss a watch
        session.subscribe("", changed)
        try:
            while not session.ready:
                if session.closed:
                    raise NotConnected("the ZooKeeper client was closed while it was in use")
                self._wait_for(changed.bell)
        finally:
            session.unsubscribe([""], changed)
        return True

    def _wait_for(self, bell: Bell) -> None:
        """Raises `DeadlinePassed`. The main thread waits in steps: Python runs no handler for a signal that comes just
        before it falls asleep, until it wakes up."""
        in_steps = threading.current_thread() is threading.main_thread()
        while not bell.wait(_shorter(self._remaining(), _STEP) if in_steps else self._remaining()):
            pass  # the deadline is looked at again

    def _remaining(self) -> float | None:
        """Seconds until the deadline. Raises `DeadlinePassed`."""
        return seconds_until(self._deadline, self._session.now())


def _shorter(remaining: float | None, longest: float) -> float:
    return longest if remaining is None else min(remaining, longest)


class _Change:
    def __init__(self, bell: Bell) -> None:
        self.bell = bell

    def changed(self, path: str) -> None:
        self.bell.ring()


def leave_now(session: Session, attempts: Sequence[Attempt]) -> None:
    """Remove every node of the attempts and wait for the confirmation, for one session timeout at most.

    What cannot be confirmed by then goes on in the background until it is, or until the session is over. Whoever
    is interrupted here calls `leave_later`.
    """
    try:
        _leave(session, attempts, session.now() + session.session_timeout)
    except DeadlinePassed:
        leave_later(session, attempts)


def leave_later(session: Session, attempts: Sequence[Attempt]) -> None:
    """Remove every node of the attempts in the background, until it is confirmed or the session is over."""
    left = [attempt for attempt in attempts if not attempt.nothing_left]
    if left:
        session.leaving.extend(left)
        session.run_errand(partial(_leave_crowd, session))


def _leave_crowd(session: Session) -> None:
    """Leave those who are waiting for it, many at a time. (Then there is nothing to do for the errands behind.)"""
    crowd: list[Attempt] = []
    while session.leaving and len(crowd) < _LEAVE_BATCH:
        crowd.append(session.leaving.popleft())
    if not crowd:
        return
    try:
        with Driver(session, None) as driver:
            driver.run(leave_all(crowd, session))
    except (SessionLost, NotConnected):
        for attempt in crowd:
            attempt.session_lost()
    except LockError:  # one of them must not keep the others here
        for attempt in crowd:
            try:
                _leave(session, [attempt], None)
            except LockError:
                _log.exception("a node of lock %r cannot be removed before its session ends", attempt.lock_name)


def _leave(session: Session, attempts: Sequence[Attempt], deadline: float | None) -> None:
    for attempt in attempts:
        try:
            if not attempt.nothing_left:
                with Driver(session, deadline) as driver:
                    driver.run(leave(attempt, session))
        except (SessionLost, NotConnected):
            attempt.session_lost()


def verify(session: Session, holdings: Sequence[Holding]) -> None:
    """Look whether the nodes of the holdings are still there, and watch them again; runs in the background."""
    nodes = [(holding, attempt.path, attempt.czxid) for holding in holdings for attempt in holding.attempts]
    for start in range(0, len(nodes), _VERIFY_BATCH):
        batch = [node for node in nodes[start : start + _VERIFY_BATCH] if node[1]]
        try:
            with Driver(session, None) as driver:
                found = driver.run(read(*(Get(path, watch=True) for _, path, _ in batch)))
        except (SessionLost, NotConnected):
            return  # which the session itself tells them
        for (holding, path, czxid), node in zip(batch, found, strict=True):
            if isinstance(node, NoNode) or land(node).stat.czxid != czxid:
                lose(session, holding, path)


def lose(session: Session, holding: Holding, path: str) -> None:
    """One of the holding's nodes is gone; what is left of it keeps nobody out any longer."""
    session.drop(holding)
    holding.node_deleted(path)
    leave_later(session, holding.attempts)
