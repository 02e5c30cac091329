"""Raising: a namespace whose tokens have to go on above a given one, after ZooKeeper was restored or made anew.

A namespace has a *floor*. Raising sets it, in one transaction with ``/epoch``, to the last epoch that counts as issued:
locks that are opened or rolled from then on are above it. Locks at the floor or below are *retired* one by one: deleted
with their counter paths, in one transaction each, as an administrator might. A client that remembers such a counter
path gets `NoNode` for its next contender, looks the lock up, and opens it again, with an epoch above the floor.

Why nobody holds twice: ZooKeeper deletes no node that has children. So a lock can go only with every contender in it,
and those that go with it hold nothing: there are none, or all of them stand behind the raiser's own contender, which
was granted the lock by the recipe and is deleted in the same transaction: it still held when that was committed.
Whoever holds, or stands before the raiser, keeps the lock in peace and is waited for.

Why it may die anywhere: the floor is written before the first lock goes, each lock goes as a whole or not at all, and
the raiser's contenders are ephemeral. The next run finds the floor, and what is still below it.

Why nobody goes on with the former id of an adopted namespace: the id is written in the same transaction as the floor. A
client learns it behind the creation of its node in a counter path, and remembers it for that path only. Once every lock
at the floor or below is gone, each counter path was made after the new id was written, and so is seen after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from .._errors import EpochExhausted, NamespaceDamaged, RepairRefused
from ._attempt import Attempt
from ._identity import Identity, load_identity
from ._layout import EPOCHS, Layout, contenders_in, load_epoch, load_lock_epoch
from ._opening import make_namespace
from ._operations import (
    BadVersion,
    Children,
    ConnectionLost,
    Delete,
    Get,
    Jitter,
    Multi,
    Node,
    NoNode,
    NotEmpty,
    SetData,
    Steps,
    Sync,
    ask,
    land,
    read,
)

_MOST_BYTES: Final = 512 * 1024  # in one transaction; ZooKeeper drops a connection that sends more than 1 MB
_OVERHEAD: Final = 20  # of each path in it
_BEHIND_A_WRITER: Final = ("x-", "r-")  # contenders that an exclusive one in front of them keeps waiting
_SEMAPHORE: Final = "s"


@dataclass(frozen=True, slots=True)
class Situation:
    """``issued``: the last epoch issued, as ``/epoch`` says."""

    identity: Identity
    issued: int


class _Seen(NamedTuple):
    situation: Situation
    versions: tuple[int, int]  # of the namespace's node and of /epoch


def survey(layout: Layout) -> Steps[Situation | None]:
    """What the namespace says of itself; ``None`` where there is none. Raises `NamespaceDamaged`, `SessionLost`."""
    seen = yield from _see(layout)
    return None if seen is None else seen.situation


def _see(layout: Layout) -> Steps[_Seen | None]:
    # Behind a sync: an older view would be no reason to change anything, but a wrong thing to tell.
    _, namespace, epoch, locks = yield from read(
        Sync(layout.namespace), Get(layout.namespace), Get(layout.epoch), Children(layout.locks)
    )
    bare = isinstance(epoch, NoNode) and isinstance(locks, NoNode)
    if isinstance(namespace, NoNode) or (bare and not land(namespace).data):
        return None
    for path, node in ((layout.epoch, epoch), (layout.locks, locks)):
        if isinstance(node, NoNode):
            raise NamespaceDamaged(path, "the namespace is there, but this node of it is not")
    named: Node = land(namespace)
    counted: Node = land(epoch)
    situation = Situation(load_identity(layout.namespace, named.data), load_epoch(layout.epoch, counted.data))
    return _Seen(situation, (named.stat.version, counted.stat.version))


def raised(layout: Layout, before: Situation | None, epoch: int, namespace_id: str | None = None) -> Situation:
    """What the namespace has to become so that its next tokens are above those of ``epoch``, and carry
    ``namespace_id`` (``None``: the id that it has). Only ever upwards. Raises `EpochExhausted`, and `RepairRefused`
    where there is no namespace whose id could stay.

    A restored or rebuilt ensemble has lost count of all its locks and not only of the one that was noticed; a new id
    must reach them all. So the floor is at everything that was issued, and not only at ``epoch``.
    """
    if before is None:
        if namespace_id is None:
            raise RepairRefused(
                f"there is no namespace {layout.namespace}. Was ZooKeeper made anew? Then it takes `namespace adopt`, "
                "with the id that the store's refusal names. Otherwise this is the wrong ensemble, chroot or namespace"
            )
        after = Situation(Identity(namespace_id, epoch), epoch)
    else:
        identity = before.identity
        renamed = namespace_id not in (None, identity.id)
        floor = max(epoch, before.issued) if renamed or epoch > identity.floor else identity.floor
        former = tuple(dict.fromkeys((*identity.former, identity.id))) if renamed else identity.former
        after = Situation(Identity(namespace_id or identity.id, floor, former), max(before.issued, floor))
    if after.issued >= EPOCHS - 1:
        raise EpochExhausted(layout.namespace)
    return after


def objections(before: Situation | None, after: Situation) -> list[str]:
    """Why this is probably a mistake."""
    found = []
    if before is not None and after.identity.id != before.identity.id and after.identity.id in before.identity.former:
        found.append(
            f"this namespace had the id {after.identity.id} before, and gave it up for another one: resources of the "
            "later id would be refused from now on. The data of resources that are pinned to an id that was given up "
            "can be moved to a new place and adopt()ed there"
        )
    if after.issued >= EPOCHS // 2 and (before is None or after.issued > before.issued):
        found.append(
            f"epoch {after.issued} is more than half of all that there will ever be, and there is no way back. A token "
            "like that is rather forged or mistyped; one resource's forged mark is no reason to use up a namespace"
        )
    return found


def raise_floor(
    layout: Layout, epoch: int, namespace_id: str | None = None, *, force: bool = False
) -> Steps[Situation]:
    """Make the namespace what `raised` says. With a ``namespace_id`` it is made where it is
    missing. ``force``: over `objections`.

    Raises `RepairRefused`, `EpochExhausted`, `NamespaceDamaged`, `SessionLost`.
    """
    tries = 0
    while True:
        seen = yield from _see(layout)
        before = None if seen is None else seen.situation
        after = raised(layout, before, epoch, namespace_id)
        if after == before:
            return after
        doubts = objections(before, after)
        if doubts and not force:
            raise RepairRefused("; ".join(doubts))
        if seen is None:
            yield from make_namespace(layout, after.identity.to_data(), after.issued)
            continue
        name_version, epoch_version = seen.versions
        changes = (
            SetData(layout.namespace, after.identity.to_data(), name_version),
            SetData(layout.epoch, str(after.issued).encode(), epoch_version),
        )
        try:
            yield from ask(Multi(changes))
        except (BadVersion, NoNode):  # somebody opens locks, or repairs too
            yield Jitter(tries)
            tries += 1
        except ConnectionLost:
            continue  # applied or not: the next look tells
        else:
            return after


def list_locks(layout: Layout) -> Steps[Sequence[str]]:
    """The paths of all locks, as the leader knew them when it was asked."""
    _, listing = yield from read(Sync(layout.locks), Children(layout.locks))
    if isinstance(listing, NoNode):
        raise NamespaceDamaged(layout.locks, "it is not there")
    return [f"{layout.locks}/{name}" for name in sorted(land(listing).names)]


class Fate(Enum):
    """What has become of a lock in a raise."""

    ABOVE = auto()  # its next token is above the floor already
    RETIRED = auto()  # it was deleted, and comes back above the floor
    DUE = auto()  # only looked at: it could be deleted now
    BUSY = auto()  # somebody holds it or stands in line


class Finding(NamedTuple):
    """``obstacle``: the path of what keeps a busy lock from being retired."""

    fate: Fate
    obstacle: str = ""


def retire(lock: str, floor: int, own: Attempt | None = None, *, look_only: bool = False) -> Steps[Finding]:
    """Delete ``lock`` with its counter paths, if its epoch is not above ``floor`` and nobody is in it.

    With ``own``, a contender that holds it, those who wait behind it are deleted too: each of them queues anew, and so
    finds the lock's next epoch. Raises `NamespaceDamaged`, `SessionLost`.
    """
    tries = 0
    while True:
        found, children = yield from read(Get(lock), Children(lock))
        if isinstance(found, NoNode) or isinstance(children, NoNode):
            return Finding(Fate.ABOVE)
        if load_lock_epoch(lock, land(found).data) > floor:
            return Finding(Fate.ABOVE)
        counters = []
        for name in land(children).names:
            if not (name.isascii() and name.isdecimal()):
                return Finding(Fate.BUSY, f"{lock}/{name}")
            counters.append(f"{lock}/{name}")
        listings = yield from read(*(Children(counter) for counter in counters))
        inside = [
            f"{counter}/{name}"
            for counter, listing in zip(counters, listings, strict=True)
            if not isinstance(listing, NoNode)
            for name in sorted(land(listing).names)
        ]
        if inside and all(_is_in_semaphore(path) for path in inside):
            return Finding(Fate.ABOVE)  # a semaphore's queue: its grants carry the tokens of the slots' locks
        obstacle = next((path for path in inside if not _gives_way(path, own)), None)
        if obstacle is not None:
            return Finding(Fate.BUSY, obstacle)
        if own is not None and own.path not in inside:
            return Finding(Fate.BUSY, own.path)  # it was lost: it holds nothing that could be given up
        if look_only:
            return Finding(Fate.DUE)
        doomed = [*inside, *counters, lock]
        if sum(len(path) + _OVERHEAD for path in doomed) > _MOST_BYTES:
            return Finding(Fate.BUSY, inside[-1])
        try:
            yield from ask(Multi(tuple(Delete(path) for path in doomed)))
        except (NoNode, NotEmpty):  # somebody came or went
            yield Jitter(tries)
            tries += 1
        except ConnectionLost:
            continue  # applied or not: the next look tells
        else:
            if own is not None:
                own.gone()
            return Finding(Fate.RETIRED)


def _gives_way(path: str, own: Attempt | None) -> bool:
    """Whether ``path`` may be deleted in one transaction with ``own``, which holds the lock.

    All lower numbers were gone when it was granted, and none comes back: whoever else is there stands behind it.
    """
    counter, _, name = path.rpartition("/")
    return (
        own is not None
        and counter == own.counter
        and name.startswith(_BEHIND_A_WRITER)
        and bool(contenders_in((name,)))
    )


def _is_in_semaphore(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.startswith(_SEMAPHORE) and bool(contenders_in((name,)))
