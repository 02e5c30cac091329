"""Opening: which counter path is a lock's current one; opens a lock, and rolls it to the next epoch."""

from __future__ import annotations

import logging
from typing import Final

from .._errors import EpochExhausted, MissingChroot, NamespaceDamaged
from ._attempt import Attempt
from ._layout import EPOCHS, counter_path, dump, load_epoch, load_lock_epoch
from ._operations import (
    BadVersion,
    ConnectionLost,
    Create,
    Delete,
    Get,
    Jitter,
    Multi,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    SetData,
    Steps,
    ask,
    fly,
    land,
    read,
)

_log: Final = logging.getLogger("zkfence")
_WARN_AT: Final = EPOCHS // 2
_SPREAD: Final = 2  # every opening of the namespace is a rival, and each of their tries takes two round trips


def find_epoch(attempt: Attempt, namespace_id: str, *, closed: int | None = None, missing: bool = False) -> Steps[int]:
    """The lock's current epoch; makes the namespace and opens the lock where they are not there yet.

    ``closed`` is an epoch whose counter path cannot be used: because the attempt's own node in it has a closing number
    (the node is deleted, in the same transaction that rolls the lock), or, with ``missing``, because the path was not
    there. The lock is rolled only if that epoch is still its current one.

    ``namespace_id`` is the id of the namespace if it has to be made. Raises `SessionLost`.
    """
    layout, lock = attempt.layout, attempt.lock_path
    tries = 0
    while True:
        # /epoch first and the lock after it: a roll based on an older view of the lock then loses on the version.
        reads = [Get(layout.epoch), Get(lock)]
        if missing and closed is not None:
            reads.append(Get(counter_path(lock, closed)))
        found_epoch, found_lock, *found_counter = yield from read(*reads)
        if isinstance(found_epoch, NoNode):
            yield from _make_namespace(attempt, namespace_id)
            continue
        epoch_node: Node = land(found_epoch)
        issued = load_epoch(layout.epoch, epoch_node.data)
        changes: list[Create | Delete | SetData] = []
        lock_node: Node | None = None
        if isinstance(found_lock, NoNode):
            if attempt.path:  # its parents are gone, and so is the node
                attempt.gone()
        else:
            lock_node = land(found_lock)
            assert lock_node is not None
            current = load_lock_epoch(lock, lock_node.data)
            if current > issued:
                yield from _check_issued(attempt, current)
                continue
            if current != closed or (found_counter and not isinstance(found_counter[0], NoNode)):
                return current
            if attempt.path:
                changes.append(Delete(attempt.path))
        coming = issued + 1
        if coming >= EPOCHS:
            raise EpochExhausted(layout.namespace)
        if coming >= _WARN_AT:
            _log.warning("namespace %s has used %d of its %d epochs", layout.namespace, coming, EPOCHS)
        changes.append(SetData(layout.epoch, str(coming).encode(), epoch_node.stat.version))
        if lock_node is None:
            changes.append(Create(lock, dump(epoch=coming)))
        else:
            changes.append(SetData(lock, dump(epoch=coming), lock_node.stat.version))
        changes.append(Create(counter_path(lock, coming)))
        try:
            yield from ask(Multi(tuple(changes)))
        except (BadVersion, NodeExists, NoNode):
            # Somebody else was faster, or removed something. An own node that is gone cannot prove a closure.
            if attempt.path and (yield from _is_gone(attempt.path)):
                attempt.gone()
                assert closed is not None
                return closed
            yield Jitter(_SPREAD + tries)
            tries += 1
        except ConnectionLost:
            continue  # applied or not: the next look tells
        else:
            if attempt.path:
                attempt.gone()
            return coming


def _is_gone(path: str) -> Steps[bool]:
    (found,) = yield from read(Get(path))
    return isinstance(found, NoNode)


def _check_issued(attempt: Attempt, current: int) -> Steps[None]:
    """A lock's epoch above ``/epoch`` is damage, unless ``/epoch`` was raised since it was read."""
    layout = attempt.layout
    (found,) = yield from read(Get(layout.epoch))
    if not isinstance(found, NoNode) and load_epoch(layout.epoch, land(found).data) < current:
        raise NamespaceDamaged(layout.epoch, f"it is lower than epoch {current} of {attempt.lock_path}")


def _make_namespace(attempt: Attempt, namespace_id: str) -> Steps[None]:
    """Make the namespace whole, in one transaction, or find that somebody else has. Half a namespace is damage."""
    layout = attempt.layout
    found, locks, epoch = yield from read(Get(layout.namespace), Get(layout.locks), Get(layout.epoch))
    identity = dump(id=namespace_id)
    if isinstance(found, NoNode):
        (root,) = yield from read(Get("/"))
        if isinstance(root, NoNode):
            raise MissingChroot
        for ancestor in layout.ancestors:
            (there,) = yield from read(Get(ancestor))
            if isinstance(there, NoNode):
                # Somebody else may be faster, or the answer be lost: the transaction below tells.
                yield from fly(Create(ancestor))
        head: Create | SetData = Create(layout.namespace, identity)
    else:
        node: Node = land(found)
        if not isinstance(epoch, NoNode):
            return  # somebody else has made it since
        if node.data or not isinstance(locks, NoNode):
            raise NamespaceDamaged(layout.epoch, "the namespace is there, but the last epoch that it issued is not")
        head = SetData(layout.namespace, identity, node.stat.version)  # a bare node that an administrator has made
    try:
        yield from ask(Multi((head, Create(layout.epoch, b"0"), Create(layout.locks))))
    except (NodeExists, NoNode, BadVersion, NotEmpty, ConnectionLost):
        yield Jitter(0)
