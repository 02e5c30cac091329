"""The locks for threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from types import TracebackType

from ._core._contender import Contender, list_contenders
from ._core._kinds import EXCLUSIVE, READ
from ._core._operations import Steps
from ._errors import LockTimeout, NotConnected
from ._grant import Grant
from ._grant_base import GrantBase
from ._holding import State
from ._landing import DeadlinePassed
from ._lock_base import NO_ANSWER, LockBase, check_timeout
from ._owner import current_owner
from ._plain_base import PlainBase
from ._semaphore_base import SemaphoreBase
from ._threads import Driver, T, leave_later, leave_now, verify


class _Lock(LockBase):
    """The face for threads, whatever the kind."""

    __slots__ = ()

    def acquire(self, *, timeout: float | None = None) -> Grant:
        """Wait for the lock, in line.

        ``timeout`` is in seconds and counts for the whole call; ``None`` waits for ever, 0 tries once. Raises
        `LockTimeout` at the deadline, `WouldDeadlock` where this thread holds the lock already, `NotConnected` where
        the client is not started or closed, `TooManyLocks`, `AccessDenied`, and leaves nothing behind whatever is
        raised. A session that is lost while it waits is replaced by the client's next one, at the end of the line.

        Not to be called from a kazoo watch callback, which would have to wake it.
        """
        check_timeout(timeout)
        if timeout is None:
            grant = self._acquire(None, wait=True)
            assert grant is not None
            return grant
        try:
            if timeout == 0:
                grant = self.try_acquire()
            else:
                grant = self._acquire(self._session.now() + min(timeout, threading.TIMEOUT_MAX), wait=True)
        except DeadlinePassed:
            grant = None
        if grant is None:
            raise LockTimeout(self.name, timeout)
        return grant

    def try_acquire(self) -> Grant | None:
        """The lock if it is free now, ``None`` if somebody holds it or waits for it.

        Raises `NotConnected` if ZooKeeper does not answer within the session timeout.
        """
        try:
            return self._acquire(self._session.now() + self._session.session_timeout, wait=False)
        except DeadlinePassed:
            raise NotConnected(NO_ANSWER) from None

    def contenders(self) -> Sequence[Contender]:
        """Who holds the lock and who waits for it, in the order in which they are served. A snapshot.

        Raises `NotConnected` if ZooKeeper does not answer within the session timeout.
        """
        return self._ask(list_contenders(self._layout, self.name))

    def holder(self) -> Contender | None:
        """Who holds the lock (the first one, where several do); ``None`` where nobody does. See `contenders`."""
        return next((contender for contender in self.contenders() if contender.holds), None)

    def _ask(self, steps: Steps[T]) -> T:
        self._session.check_usable(self.name)
        try:
            with Driver(self._session, self._session.now() + self._session.session_timeout) as driver:
                return driver.run(steps)
        except DeadlinePassed:
            raise NotConnected(NO_ANSWER) from None

    def _acquire(self, deadline: float | None, *, wait: bool) -> Grant | None:
        session = self._session
        session.check_usable(self.name)
        owner = current_owner(session.client.handler)
        again = self._again(owner, wait=wait)
        if again is not None:
            grant = Grant(again)
            if again.state is State.HELD:
                return grant
            grant.release()  # another thread released the last one, or it was lost, since we looked
        procedure = self._begin(wait=wait)
        try:
            with Driver(session, deadline, self._acl) as driver:
                try:
                    granted = driver.run(procedure.run())
                finally:
                    self._remember(procedure)
                if granted is not None:
                    holding = self._hold(procedure, granted, owner)
                    if driver.woken:  # something changed before the grant was being told
                        session.run_errand(partial(verify, session, [holding]))
                    return Grant(holding)
            leave_now(session, procedure.attempts)
        except BaseException:
            leave_later(session, procedure.attempts)
            raise
        return None

    def __enter__(self) -> Grant:
        grant = self.acquire()
        try:
            self._enter(current_owner(self._session.client.handler), grant)
        except BaseException:  # Ctrl-C: the block is not entered, and so never left
            grant.release()
            raise
        return grant

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        grant = self._leave(current_owner(self._session.client.handler))
        assert isinstance(grant, Grant)
        grant.release()

    def _leave(self, owner: object) -> GrantBase:
        """A framework may leave in another thread than the one that has entered: the teardown of a fixture, a web
        server that runs the two halves of a generator in its pool."""
        with self._session.changing:
            entered = self._entered or {}
            if owner not in entered:
                ended = [each for each in entered if isinstance(each, threading.Thread) and not each.is_alive()]
                only = list(entered) if sum(map(len, entered.values())) == 1 else []
                if not ended and not only:
                    raise RuntimeError(
                        f"this thread has not entered {self!r}, and it is not clear whose grant is to be released: "
                        "enter the grant itself, `with lock.acquire() as grant:`, which may be left in any thread"
                    )
                owner = (ended or only)[-1]
            return super()._leave(owner)


class FencedLock(_Lock, PlainBase):
    """An exclusive lock on ZooKeeper whose every grant carries a fencing token.

    Guaranteed: tokens of one lock rise from grant to grant, over crashes, restarts, deletion of the lock's nodes, and
    the end of ZooKeeper's counter. Contenders are served in the order in which ZooKeeper numbered them. An acquisition
    that does not end in a grant leaves no node behind.

    Not guaranteed: that a holder *knows* in time that it holds no more. A paused worker may act after its lease; claim
    the resource at a receiver, which refuses it.

    A lock object does no I/O until it is used, and threads may share it: each acquisition is a contender of its own.
    The recipe is ZooKeeper's own ("ZooKeeper Recipes and Solutions", Locks), with a token and without its known holes.
    """

    __slots__ = ()

    _of_kind = EXCLUSIVE


class FencedWriteLock(FencedLock):
    """The writer's side of a read-write lock: waits for every reader and writer before it, and keeps out those behind.

    The same as a `FencedLock` of that name, whose guarantees it has: both may be used side by side.
    """

    __slots__ = ()


class FencedReadLock(_Lock, PlainBase):
    """The reader's side of a read-write lock: waits for the writers before it; readers hold side by side.

    Whoever comes later waits behind those who came before, so that neither readers nor writers starve. A reader's grant
    reads at a receiver and is refused when it writes; its claim keeps out writers that are older. Other guarantees are
    those of `FencedLock`; so are the options.
    """

    __slots__ = ()

    _of_kind = READ


class FencedSemaphore(SemaphoreBase, _Lock):
    """A lock that ``permits`` contenders may hold at the same time, each in a slot of its own.

    ``grant.slot`` is the slot, from 0, and ``grant.token`` is a token of the slot's lock, ``name#slot``: holders do not
    fence out each other. A resource belongs to the slot that claimed it first; so keep one resource per slot.
    Contenders are admitted in the order in which ZooKeeper numbered them; who has which slot is not foreseeable.

    All users of one name have to agree on ``permits`` (`MixedKinds` otherwise). Options as for `FencedLock`. A thread
    may hold several permits, but is told by `WouldDeadlock` when it holds them all and wants another one.
    """

    __slots__ = ()
