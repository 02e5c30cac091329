"""The driver for tasks: runs protocol steps on an event loop, which it never blocks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from kazoo.security import ACL

from .._core._attempt import Attempt
from .._core._leaving import leave
from .._core._operations import Effect, Flight, Get, Jitter, Landed, Ready, SessionLost, Steps, Wait
from .._errors import NotConnected
from .._kazoo import Answers, backlog
from .._landing import DeadlinePassed, lost, pause, prove, seconds_until
from .._session import Session
from .._threads import leave_later
from ._bell import Bell
from ._runway import Runway, Slot

_FLIGHT: Final = 3  # no flight that `Ready` goes before has more requests
_BACKLOG: Final = 240  # unread requests of everybody who uses the client, at which a loop would be about to block
_BREATH: Final = 0.005  # seconds

T = TypeVar("T")


class _Flying(NamedTuple):
    """What is under way."""

    flight: Flight
    answers: Answers
    sent_at: float
    session_id: int | None


class Driver:
    """Runs steps for one task. Until it is left, it is told of the nodes that it has watched."""

    def __init__(
        self,
        session: Session,
        deadline: float | None,
        acl: Sequence[ACL] | None = None,
        *,
        leave: Callable[[], object] = lambda: None,
    ) -> None:
        """``deadline`` is a moment of the session's clock; ``None`` waits for ever. ``leave`` removes in the background
        what the steps may have made, after `abandon`."""
        loop = asyncio.get_running_loop()
        self._session = session
        self._deadline = deadline
        self._acl = acl
        self._leave = leave
        self._landed = Bell(loop)  # or: the connection has changed
        self._cleared = Bell(loop)  # for the runway
        self._changed = Bell(loop)
        self._fired: deque[str] = deque()
        self._watched = {""}  # no node has an empty path: changes of the connection
        self._runway = Runway.of(session)
        self._slot: Slot | None = None  # for the next flight
        self._steps: Steps[Any] | None = None
        self._flying: _Flying | None = None
        self._is_abandoned = False

    def __enter__(self) -> Self:
        self._session.subscribe("", self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.unsubscribe(self._watched, self)
        self._yield_slot()

    def changed(self, path: str) -> None:
        self._fired.append(path)
        self._ring(self._changed)
        if not path:
            self._ring(self._landed)

    @property
    def woken(self) -> bool:
        """Something that was watched has changed since the last `Wait` ended."""
        return bool(self._fired)

    async def run(self, steps: Steps[T]) -> T:
        """Run the steps to their end. Raises `DeadlinePassed`, `CancelledError`, and whatever the steps raise; then
        `abandon` them."""
        self._steps = steps
        answer: Landed | set[str] | None = None
        try:
            while True:
                answer = await self._do(steps.send(answer))
        except StopIteration as stop:
            self._steps = None
            result: T = stop.value
            return result

    def abandon(self) -> None:
        """The steps will not go on: leave, as soon as what is under way has landed. On any thread; does not block.

        To wait for the answer of a create saves to look for its node, which takes a read per contender: a crowd that is
        cancelled would keep the session busy with nothing else. May be said again.
        """
        self._is_abandoned = True
        if self._flying is None or self._flying.answers.complete:
            self._session.run_errand(self._land)

    async def _do(self, effect: Effect) -> Landed | set[str] | None:
        match effect:
            case Flight():
                return await self._fly(effect)
            case Ready():
                await self._reserve(_FLIGHT)
                await self._await_connection()
            case Wait():
                await self._wait_for(self._changed)
                return {self._fired.popleft() for _ in range(len(self._fired))}
            case Jitter(attempt):
                longest, remaining = pause(attempt), self._remaining()
                await asyncio.sleep(longest if remaining is None else min(longest, remaining))
                self._remaining()
        return None

    # --- flying -------------------------------------------------------------------------------------------------

    async def _fly(self, flight: Flight) -> Landed:
        session = self._session
        for operation in flight.operations:
            # Told from before the watch is placed, so that no event can fall between the two.
            if isinstance(operation, Get) and operation.watch and operation.path not in self._watched:
                self._watched.add(operation.path)
                session.subscribe(operation.path, self)
        await self._reserve(len(flight.operations))
        try:
            if await self._await_connection():
                return lost(session, flight)
            while backlog(session.client) + len(flight.operations) > _BACKLOG:
                await asyncio.sleep(_BREATH)
                self._remaining()
                if not session.ready:
                    return lost(session, flight)
            self._remaining()
            assert self._slot is not None
            sent_at, session_id = session.now(), session.session_id
            answers = session.kazoo.send(flight.operations, self._acl, partial(self._arrived, self._slot))
            self._flying = flying = _Flying(flight, answers, sent_at, session_id)
            self._slot = None  # is left when the answers arrive, whether anybody waits for them or not
        finally:
            self._yield_slot()
        while not answers.complete:
            await self._wait_for(self._landed)
        self._flying = None
        return self._result(flying)

    def _result(self, flying: _Flying) -> Landed:
        session, flight = self._session, flying.flight
        landed = Landed(flying.sent_at, session.kazoo.results(flight.operations, flying.answers))
        prove(session, flying.session_id, flight, landed)
        return landed

    def _arrived(self, slot: Slot, answers: object) -> None:
        self._runway.leave(slot)
        if self._is_abandoned:
            self._session.run_errand(self._land)
        else:
            self._ring(self._landed)

    def _land(self) -> None:
        """Let the steps know what has become of their last flight, and nothing more; then leave. Runs in the
        background, where one thing is done after another."""
        steps, self._steps = self._steps, None
        flying, self._flying = self._flying, None
        if steps is not None:
            if flying is not None:
                with suppress(Exception):  # their end, or an error that nobody waits for any more
                    steps.send(self._result(flying))
            steps.close()
        self._leave()

    async def _reserve(self, requests: int) -> None:
        """Have room for the next flight, before anything of it has to be cleaned up."""
        if self._slot is not None and self._slot.requests < requests:
            self._yield_slot()
        if self._slot is None:
            self._slot = self._runway.enter(requests, partial(self._ring, self._cleared))
        while not self._slot.taken:
            await self._wait_for(self._cleared)
            self._runway.take(self._slot)

    def _yield_slot(self) -> None:
        slot, self._slot = self._slot, None
        if slot is not None:
            self._runway.leave(slot)

    async def _await_connection(self) -> bool:
        """Wait until the client is connected; tells whether that was needed. Raises `NotConnected` if it is closed."""
        session = self._session
        if session.ready:
            return False
        while not session.ready:
            if session.closed:
                raise NotConnected("the ZooKeeper client was closed while it was in use")
            await self._wait_for(self._landed)
        return True

    # --- waiting ------------------------------------------------------------------------------------------------

    async def _wait_for(self, bell: Bell) -> None:
        if not await bell.wait(self._remaining()):
            raise DeadlinePassed

    def _remaining(self) -> float | None:
        """Seconds until the deadline. Raises `DeadlinePassed`."""
        return seconds_until(self._deadline, self._session.now())

    def _ring(self, bell: Bell) -> None:
        if not bell.ring():  # the loop is closed, and the task will never go on
            self.__exit__(None, None, None)
            self.abandon()


async def leave_now(session: Session, attempts: Sequence[Attempt]) -> None:
    """Remove every node of the attempts and wait for the confirmation, for one session timeout at most.

    What is not confirmed by then goes on in the background until it is, or until the session is over; and so it does
    where the task is cancelled.
    """
    deadline = session.now() + session.session_timeout
    driver = Driver(session, deadline, leave=partial(leave_later, session, attempts))
    try:
        with driver:
            for attempt in attempts:
                try:
                    if not attempt.nothing_left:
                        await driver.run(leave(attempt, session))
                except (SessionLost, NotConnected):
                    attempt.session_lost()
    except DeadlinePassed:
        driver.abandon()
    except BaseException:
        driver.abandon()
        raise
