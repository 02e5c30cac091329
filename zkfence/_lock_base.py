"""LockBase: what locks have in common, of whatever kind, for threads and for tasks."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from kazoo.client import KazooClient
from kazoo.security import ACL

from zkfence_receivers.words import check_name

from ._core._acquiring import Acquisition, Procedure
from ._core._attempt import Attempt
from ._core._counter import CounterPath
from ._core._kinds import Kind
from ._core._layout import CEILING, FORMAT, MAX_CONTENDER_BYTES, Layout
from ._core._queue import Granted
from ._errors import WouldDeadlock
from ._exposure import tell_if_exposed
from ._grant_base import GrantBase
from ._holding import Holding, State
from ._session import Session
from ._threads import leave_later

_HOST: Final = socket.gethostname()
_layout_of: Final = lru_cache(maxsize=64)(Layout)

NO_ANSWER: Final = "ZooKeeper did not answer within the session timeout; is the ensemble up?"


@lru_cache(maxsize=256)
def _about(pid: int, info: str) -> bytes:
    """The part of a contender's data that all contenders of a lock share, and most locks of a process."""
    fields = {"host": _HOST, "pid": pid, "info": info}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()[1:-1]


def fresh_id() -> str:
    """A GUID, as hexadecimal text."""
    return os.urandom(16).hex()


def check_timeout(timeout: float | None) -> None:
    """Raise `ValueError` for what is no timeout."""
    if timeout is not None and not timeout >= 0:  # nor NaN
        raise ValueError(f"timeout is in seconds, 0 or more, not {timeout}")


def check_acl(acl: Sequence[ACL] | None) -> None:
    """Raise `TypeError` or `ValueError` for what is no list of ACLs: in a request, it would end the connection of
    kazoo's own client for good, and an empty one would pass for the default, which is open to everybody."""
    if acl is None:
        return
    given: object = acl
    if isinstance(given, ACL) or not (isinstance(given, Sequence) and all(isinstance(each, ACL) for each in given)):
        raise TypeError("acl is a list of kazoo's ACLs, such as [make_digest_acl(…), …]")
    if not acl:
        raise ValueError("acl is an empty list, with which nobody could use what is created; leave it out, or fill it")


class LockBase:
    """One lock: its name, where it lives, and what is remembered of it between acquisitions."""

    __slots__ = (
        "_about", "_acl", "_entered", "_kind", "_layout", "_lock_path", "_memory", "_reentrant", "_session", "name",
    )  # fmt: skip

    _ceiling: int = CEILING  # lower in tests of the roll

    def __init__(
        self,
        client: KazooClient,
        name: str,
        kind: Kind,
        *,
        namespace: str,
        info: str,
        acl: Sequence[ACL] | None,
        reentrant: bool = False,
        session_timeout: float | None = None,
    ) -> None:
        self._check_client(client)
        check_acl(acl)
        self._session = Session.of(client)
        self._layout = _layout_of(namespace)
        self._kind = kind
        self._acl = acl
        self._reentrant = reentrant
        self._memory: CounterPath | None = None
        self._entered: dict[object, list[GrantBase]] | None = None  # a `with` releases what its owner was granted
        self.name: Final[str] = check_name(name, "lock")
        self._lock_path = self._layout.lock(name)
        self._about = _about(os.getpid(), info)
        if len(self._contender("0" * 32)) > MAX_CONTENDER_BYTES:
            raise ValueError(f"info is too long: a contender's data has at most {MAX_CONTENDER_BYTES} bytes")
        if session_timeout is not None:
            if not session_timeout > 0:  # nor NaN
                raise ValueError(f"session_timeout is in seconds, more than 0, not {session_timeout}")
            self._session.tell_timeout(session_timeout)

    def _check_client(self, client: KazooClient) -> None:
        """Raise `TypeError` for what is no client, or none for this face."""
        if not isinstance(client, KazooClient):
            raise TypeError(f"a lock needs a KazooClient first, such as zkfence.connect() makes, not {client!r}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} in {self._layout.namespace}>"

    def _contender(self, guid: str) -> bytes:
        """The data of a contender's node, JSON."""
        return b'{"v":%d,"guid":"%s","since":%.3f,%s}' % (FORMAT, guid.encode(), time.time(), self._about)

    def _attempt(self, name: str, kind: Kind, guid: str) -> Attempt:
        path = self._lock_path if name is self.name else ""
        return Attempt(self._layout, name, guid, self._contender(guid), kind, self._session.book, path)

    def _acquisition(self, attempt: Attempt, memory: CounterPath | None, *, wait: bool) -> Acquisition:
        return Acquisition(attempt, self._session, memory, fresh_id=fresh_id, wait=wait, ceiling=self._ceiling)

    def _begin(self, *, wait: bool) -> Procedure:
        """A new acquisition; `_remember` what it has learned."""
        return self._acquisition(self._attempt(self.name, self._kind, fresh_id()), self._memory, wait=wait)

    def _remember(self, procedure: Procedure) -> None:
        assert isinstance(procedure, Acquisition)
        self._learn(procedure.memory)

    def _learn(self, memory: CounterPath | None) -> None:
        if self._memory is None and memory is not None:
            tell_if_exposed(self._session.client, self._layout, self._acl)
        self._memory = memory

    def _again(self, owner: object, *, wait: bool) -> Holding | None:
        """What the owner holds already, if the lock is reentrant. Raises `WouldDeadlock` where it would wait for
        itself."""
        held = []
        for holding in self._session.held_by(owner, self._lock_path):
            if holding.look() is State.LOST:  # at its deadline: the session may live, and its node would be waited for
                self._session.drop(holding)
                leave_later(self._session, holding.attempts)
            else:
                held.append(holding)
        if not held:
            return None
        if self._reentrant and held[0].granted.attempt.kind == self._kind:
            return held[0]
        if wait and self._waits_for(held):
            raise WouldDeadlock(self.name, f"token {held[0].token.dotted}")
        return None

    def _waits_for(self, held: Sequence[Holding]) -> bool:
        """Whether one that holds these would wait for itself."""
        return True

    def _hold(self, procedure: Procedure, granted: Granted, owner: object) -> Holding:
        _, *others = procedure.attempts  # the first one has the token
        holding = Holding(self._session, owner, self._lock_path, granted, tuple(others))
        self._session.hold(holding)
        return holding

    def _enter(self, owner: object, grant: GrantBase) -> None:
        with self._session.changing:
            if self._entered is None:
                self._entered = {}
            self._entered.setdefault(owner, []).append(grant)

    def _leave(self, owner: object) -> GrantBase:
        assert self._entered is not None
        grants = self._entered[owner]
        grant = grants.pop()
        if not grants:
            del self._entered[owner]
        return grant
