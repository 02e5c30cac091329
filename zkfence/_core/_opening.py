"""Opening: which counter path is a lock's current one; opens a lock, and rolls it to the next epoch."""

from __future__ import annotations

import logging
from typing import Final

from .._errors import EpochExhausted, MissingChroot, NamespaceDamaged
from ._attempt import Attempt
from ._layout import EPOCHS, Layout, counter_path, dump, load_epoch, load_lock_epoch
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
    taken = 0  # a stranger's node stands where this epoch's counter path would
    while True:
        # /epoch first and the lock after it: a roll based on an older view of the lock then loses on the version.
        reads = [Get(layout.epoch), Get(lock)]
        if attempt.path:
            reads.append(Get(attempt.path))
        elif missing and closed is not None:
            reads.append(Get(counter_path(lock, closed)))
        found_epoch, found_lock, *found = yield from read(*reads)
        if attempt.path and (isinstance(found[0], NoNode) or land(found[0]).stat.czxid != attempt.czxid):
            attempt.gone()
            closed = None  # only the own closing node could prove a closure
        if isinstance(found_epoch, NoNode):
            yield from make_namespace(layout, dump(id=namespace_id))
            continue
        epoch_node: Node = land(found_epoch)
        issued = load_epoch(layout.epoch, epoch_node.data)
        changes: list[Create | Delete | SetData] = []
        lock_node: Node | None = None
        if not isinstance(found_lock, NoNode):
            lock_node = land(found_lock)
            assert lock_node is not None
            current = load_lock_epoch(lock, lock_node.data)
            if current > issued:
                yield from _check_issued(attempt, current)
                continue
            is_there_again = missing and found and not isinstance(found[0], NoNode)
            if current != closed or (is_there_again and not attempt.path):
                return current
            if attempt.path:
                changes.append(Delete(attempt.path))
        coming = max(issued, taken) + 1
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
        except (BadVersion, NodeExists, NoNode) as failure:  # somebody else was faster, or removed something
            if isinstance(failure, NodeExists) and lock_node is not None:
                taken = coming  # the version of /epoch was right, so this epoch was never issued
            yield Jitter(_SPREAD + tries)
            tries += 1
        except ConnectionLost:
            continue  # applied or not: the next look tells
        else:
            if attempt.path:
                attempt.gone()
            return coming


def _check_issued(attempt: Attempt, current: int) -> Steps[None]:
    """A lock's epoch above ``/epoch`` is damage, unless one of them was changed, or all was made anew, in between."""
    layout = attempt.layout
    before, found, after = yield from read(Get(attempt.lock_path), Get(layout.epoch), Get(attempt.lock_path))
    if any(isinstance(each, NoNode) for each in (before, found, after)):
        return
    is_same = land(before).stat.czxid == land(after).stat.czxid
    if is_same and load_epoch(layout.epoch, land(found).data) < load_lock_epoch(attempt.lock_path, land(before).data):
        raise NamespaceDamaged(layout.epoch, f"it is lower than epoch {current} of {attempt.lock_path}")


def make_namespace(layout: Layout, identity: bytes, issued: int = 0) -> Steps[None]:
    """Make the namespace whole, in one transaction, or find that somebody else has. Half a namespace is damage.

    ``identity`` is the data of its node, ``issued`` the epoch that counts as the last one issued.
    """
    # The namespace once more behind the others: what is missing in between may have gone with the whole of it.
    found, locks, epoch, still = yield from read(
        Get(layout.namespace), Get(layout.locks), Get(layout.epoch), Get(layout.namespace)
    )
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
        if isinstance(still, NoNode) or land(still).stat.czxid != node.stat.czxid:
            return
        if node.data or not isinstance(locks, NoNode):
            raise NamespaceDamaged(layout.epoch, "the namespace is there, but the last epoch that it issued is not")
        head = SetData(layout.namespace, identity, node.stat.version)  # a bare node that an administrator has made
    try:
        yield from ask(Multi((head, Create(layout.epoch, str(issued).encode()), Create(layout.locks))))
    except (NodeExists, NoNode, BadVersion, NotEmpty, ConnectionLost):
        yield Jitter(0)
