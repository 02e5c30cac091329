"""The driver for threads: runs protocol steps on a kazoo client, with its handler's events (gevent's too)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from kazoo.interfaces import IAsyncResult
from kazoo.security import ACL

from ._core._attempt import Attempt, State
from ._core._leaving import leave
from ._core._operations import (
    ConnectionLost,
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
from ._errors import NotConnected
from ._kazoo import nudge, result_of, send
from ._session import Session

_JITTER: Final = 0.004  # seconds; doubles with each attempt
_JITTER_MOST: Final = 0.5

T = TypeVar("T")


class DeadlinePassed(Exception):
    """The deadline of a run has passed; what is in flight stays in flight."""


class Driver:
    """Runs steps for one caller. Until it is left, it is told of the nodes that it has watched."""

    def __init__(self, session: Session, deadline: float | None, acl: Sequence[ACL] | None = None) -> None:
        """``deadline`` is a moment of the session's clock; ``None`` waits for ever."""
        self._session = session
        self._deadline = deadline
        self._acl = acl
        self._wake = session.client.handler.event_object()
        self._watched: set[str] = set()

    def __enter__(self) -> Self:
        self._session.subscribe("", self._wake)  # no node has an empty path: changes of the connection only
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.unsubscribe("", self._wake)
        for path in self._watched:
            self._session.unsubscribe(path, self._wake)

    @property
    def woken(self) -> bool:
        """Something that was watched has changed since the last `Wait` ended."""
        return bool(self._wake.is_set())

    def run(self, steps: Steps[T]) -> T:
        """Run the steps to their end. Raises `DeadlinePassed`, and whatever the steps raise."""
        answer: Landed | None = None
        try:
            while True:
                answer = self._do(steps.send(answer))
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            steps.close()

    def _do(self, effect: Effect) -> Landed | None:
        match effect:
            case Flight():
                return self._fly(effect)
            case Ready():
                self._await_connection()
            case Wait():
                if not self._wake.wait(self._remaining()):
                    raise DeadlinePassed
                self._wake.clear()
            case Jitter(attempt):
                longest = min(_JITTER * 2 ** min(attempt, 10), _JITTER_MOST)
                pause = random.uniform(0, longest)  # noqa: S311  # rivals, not adversaries
                remaining = self._remaining()
                self._session.client.handler.sleep_func(pause if remaining is None else min(pause, remaining))
                self._remaining()
        return None

    def _fly(self, flight: Flight) -> Landed:
        for operation in flight.operations:
            # Told from before the watch is placed, so that no event can fall between the two.
            if isinstance(operation, Get) and operation.watch and operation.path not in self._watched:
                self._watched.add(operation.path)
                self._session.subscribe(operation.path, self._wake)
        if self._await_connection():
            # Nothing was sent: kazoo would keep it until it is connected, and its queue stalls at some 270 requests.
            return Landed(self._session.now(), (ConnectionLost(),) * len(flight.operations))
        self._remaining()
        sent_at = self._session.now()
        try:
            answers = [send(self._session, operation, self._acl) for operation in flight.operations]
        except BaseException:
            nudge(self._session.client)
            raise
        results = [
            result_of(self._session, operation, self._answer(answer))
            for operation, answer in zip(flight.operations, answers, strict=True)
        ]
        return Landed(sent_at, tuple(results))

    def _await_connection(self) -> bool:
        """Wait until the client is connected; tells whether that was needed. Raises `NotConnected` if it is closed."""
        client = self._session.client
        if client.connected:
            return False
        changed = client.handler.event_object()  # not the one of `Wait`, which must not miss a watch
        self._session.subscribe("", changed)
        try:
            while not client.connected:
                if self._session.closed:
                    raise NotConnected("the ZooKeeper client was closed while it was in use")
                if not changed.wait(self._remaining()):
                    raise DeadlinePassed
                changed.clear()
        finally:
            self._session.unsubscribe("", changed)
        return True

    def _answer(self, answer: IAsyncResult) -> object:
        try:
            try:
                return answer.get(timeout=self._remaining())
            except self._session.client.handler.timeout_exception:
                if not answer.ready():
                    raise DeadlinePassed from None
                return answer.get()  # it has come in this very moment
        except DeadlinePassed:
            raise
        except Exception as error:
            return error

    def _remaining(self) -> float | None:
        """Seconds until the deadline. Raises `DeadlinePassed`."""
        if self._deadline is None:
            return None
        remaining = self._deadline - self._session.now()
        if remaining <= 0:
            raise DeadlinePassed
        return remaining


def leave_now(session: Session, attempt: Attempt) -> None:
    """Remove every node of an attempt and wait for the confirmation, for one session timeout at most.

    What cannot be confirmed by then goes on in the background until it is, or until the session is over. Whoever
    is interrupted here calls `leave_later`.
    """
    try:
        with Driver(session, session.now() + session.session_timeout) as driver:
            driver.run(leave(attempt, session))
    except (SessionLost, NotConnected):
        attempt.session_lost()
    except DeadlinePassed:
        leave_later(session, attempt)


def leave_later(session: Session, attempt: Attempt) -> None:
    """Remove every node of an attempt in the background, until it is confirmed or the session is over."""

    if attempt.state is State.IDLE and not attempt.lost_creates:
        return

    def errand() -> None:
        try:
            with Driver(session, None) as driver:
                driver.run(leave(attempt, session))
        except (SessionLost, NotConnected):
            attempt.session_lost()

    session.run_errand(errand)


def is_there(session: Session, path: str, czxid: int) -> bool:
    """Whether this very node is still there; watches it again. ``True`` where the session is over: that is told by the
    session itself."""
    try:
        with Driver(session, None) as driver:
            (node,) = driver.run(read(Get(path, watch=True)))
    except (SessionLost, NotConnected):
        return True
    return not isinstance(node, NoNode) and land(node).stat.czxid == czxid
