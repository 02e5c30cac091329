"""Repair: a namespace goes on above a token that ZooKeeper has forgotten. What the command line's repairs run."""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from kazoo.client import KazooClient
from kazoo.security import ACL

from zkfence_receivers.words import InvalidName, Token, decode_component

from ._core._acquiring import Acquisition
from ._core._attempt import Attempt
from ._core._layout import Layout, dump
from ._core._operations import Get, NoNode, SessionLost, Steps, land, read
from ._core._raising import (
    Fate,
    Finding,
    Situation,
    list_locks,
    objections,
    raise_floor,
    raised,
    retire,
    survey,
)
from ._errors import LockError, NotConnected, RepairRefused
from ._landing import DeadlinePassed
from ._lock_base import fresh_id
from ._session import Session
from ._threads import Driver, leave_later, leave_now

_log: Final = logging.getLogger("zkfence")
_LEAST_SHARE: Final = 0.2  # seconds that each busy lock is waited for

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Remaining:
    """A lock that is still to be raised. ``path`` is the node that keeps it from that, ``why`` is for people."""

    lock_name: str
    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair has done; for a plan, what it would do.

    ``above`` is the token that was asked for. ``former_id`` and ``former_epoch`` are what was found (``None``: there
    was no namespace), ``namespace_id`` and ``epoch`` (the last one that counts as issued) what stands now. ``retired``
    counts the locks whose next token is above because of this run. ``remaining`` keep their tokens until their
    contenders have left and the repair was run once more. ``objections`` say why the plan is probably a mistake.
    """

    above: Token
    namespace: str
    former_id: str | None
    namespace_id: str
    former_epoch: int | None
    epoch: int
    locks: int
    retired: int
    remaining: tuple[Remaining, ...]
    objections: tuple[str, ...] = ()


def plan(client: KazooClient, above: Token, *, namespace: str, namespace_id: str | None = None) -> Repair:
    """What `repair` would do; changes nothing. Raises what it raises, but for objections, which are told."""
    layout, session = Layout(namespace), _session_of(client, namespace_id)
    before = _run(session, lambda: survey(layout))
    after = raised(layout, before, above.epoch, namespace_id)
    locks = _run(session, lambda: list_locks(layout)) if before is not None else ()
    due = 0
    remaining = []
    for lock in locks:
        found = _retire(session, lock, after.identity.floor, look_only=True)
        if isinstance(found, Remaining):
            remaining.append(found)
        elif found.fate is Fate.DUE:
            due += 1
    return _report(above, layout, before, after, len(locks), due, remaining, objections(before, after))


def repair(
    client: KazooClient,
    above: Token,
    *,
    namespace: str,
    namespace_id: str | None = None,
    wait: float = 30.0,
    force: bool = False,
    on_waiting: Callable[[Remaining], object] = lambda _: None,
) -> Repair:
    """See to it that each lock's next token is larger than ``above``; with a ``namespace_id``, that stamps carry it.

    Nothing is ever lowered, and nobody's lock is taken away: what is held is waited for, ``wait`` seconds in all, in
    line; `Repair.remaining` tells what is left then. It may be interrupted, and run again, at any time, while workers
    work. With a ``namespace_id``, the namespace is made where it is missing.

    Raises `RepairRefused` where it would rather do harm (``force``: no matter), `EpochExhausted` where no epoch is
    above, `NamespaceDamaged`, `AccessDenied`, `NotConnected`.
    """
    layout, session = Layout(namespace), _session_of(client, namespace_id)
    before = _run(session, lambda: survey(layout))
    after = _run(session, lambda: raise_floor(layout, above.epoch, namespace_id, force=force))
    floor = after.identity.floor
    locks = _run(session, lambda: list_locks(layout))
    retired = 0
    busy: list[Remaining] = []
    remaining: list[Remaining] = []
    for lock in locks:
        found = _retire(session, lock, floor)
        if isinstance(found, Remaining):
            is_lock = layout.lock(found.lock_name) == lock  # of a stranger's node there is no line to stand in
            (busy if is_lock else remaining).append(found)
        elif found.fate is Fate.RETIRED:
            retired += 1
    # What an acquisition may have to create, a next epoch, is as open or closed as its namespace.
    acl = client.get_acls(layout.locks)[0] if busy else None
    deadline = session.now() + wait
    for place, each in enumerate(busy):
        on_waiting(each)
        left = deadline - session.now()
        found = each
        if left > 0:
            share = max(_LEAST_SHARE, left / (len(busy) - place))
            found = _retire_as_holder(session, layout, each, floor, session.now() + share, acl)
        if isinstance(found, Remaining):
            remaining.append(found)
        elif found.fate is Fate.RETIRED:
            retired += 1
    done = _report(above, layout, before, after, len(locks), retired, remaining)
    _log.warning(
        "audit: namespace %s, id %s (was %s), raised above token %s: last epoch %d (was %s), %d locks retired, "
        "%d remaining; by uid %d, pid %d on %s",
        namespace, done.namespace_id, done.former_id, above.dotted, done.epoch, done.former_epoch, retired,
        len(remaining), os.getuid(), os.getpid(), socket.gethostname(),
    )  # fmt: skip
    return done


def _session_of(client: KazooClient, namespace_id: str | None) -> Session:
    if namespace_id is not None and (
        not namespace_id or "/" in namespace_id or not namespace_id.isprintable() or " " in namespace_id
    ):
        raise RepairRefused(
            f"{namespace_id!r} is no namespace id: it is what stands before the slash in the lock that the store names"
        )
    session = Session.of(client)
    session.check_usable("")
    return session


def _report(
    above: Token,
    layout: Layout,
    before: Situation | None,
    after: Situation,
    locks: int,
    retired: int,
    remaining: Sequence[Remaining],
    doubts: Sequence[str] = (),
) -> Repair:
    return Repair(
        above,
        layout.namespace,
        before.identity.id if before else None,
        after.identity.id,
        before.issued if before else None,
        after.issued,
        locks,
        retired,
        tuple(remaining),
        tuple(doubts),
    )


def _run(session: Session, steps: Callable[[], Steps[T]]) -> T:
    """Run steps that may be begun anew, over the ends of sessions."""
    while True:
        try:
            with Driver(session, None) as driver:
                return driver.run(steps())
        except SessionLost:
            continue


def _retire(session: Session, lock: str, floor: int, *, look_only: bool = False) -> Finding | Remaining:
    """One lock's trouble is told, and does not keep the others from being raised."""
    try:
        return _told(session, lock, _run(session, lambda: retire(lock, floor, look_only=look_only)))
    except NotConnected:
        raise
    except LockError as error:
        return Remaining(_name_of(lock), lock, str(error))


def _retire_as_holder(
    session: Session, layout: Layout, busy: Remaining, floor: int, deadline: float, acl: Sequence[ACL] | None
) -> Finding | Remaining:
    """Stand in line for the lock, and retire it while it is held. ``busy`` again where that takes too long."""
    guid = fresh_id()
    info = {"host": socket.gethostname(), "pid": os.getpid(), "info": "zkfence repair", "since": round(time.time(), 3)}
    attempt = Attempt(layout, busy.lock_name, guid, dump(guid=guid, **info), book=session.book)
    lock = attempt.lock_path
    found: Finding | Remaining = busy
    try:
        try:
            with Driver(session, deadline, acl) as driver:
                driver.run(Acquisition(attempt, session, None, fresh_id=fresh_id).run())
                found = driver.run(retire(lock, floor, attempt))
        except NotConnected:
            raise
        except (DeadlinePassed, SessionLost):
            pass
        except LockError as error:
            found = Remaining(busy.lock_name, lock, str(error))
        leave_now(session, [attempt])
    except BaseException:
        leave_later(session, [attempt])
        raise
    return found if isinstance(found, Remaining) else _told(session, lock, found)


def _told(session: Session, lock: str, finding: Finding) -> Finding | Remaining:
    if finding.fate is not Fate.BUSY:
        return finding
    (node,) = _run(session, lambda: read(Get(finding.obstacle)))
    why = "it was in use a moment ago" if isinstance(node, NoNode) else _who(land(node).data)
    return Remaining(_name_of(lock), finding.obstacle, why)


def _who(data: bytes) -> str:
    try:
        fields = json.loads(data)
        return f"{fields['host']}, pid {fields['pid']}, holds it or waits, since {_when(fields['since'])}"
    except (ValueError, TypeError, KeyError, OverflowError, OSError):
        return "zkfence has not made this node: find out who did, and delete it"


def _when(since: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(since))


def _name_of(lock: str) -> str:
    component = lock.rpartition("/")[2]
    try:
        return decode_component(component)
    except InvalidName:
        return component
