"""Which of ZooKeeper's permissions an operation needs, and what to say where it is missing."""

from __future__ import annotations

from dataclasses import dataclass

from kazoo import exceptions

from ._core import _operations as core
from ._errors import AccessDenied


@dataclass(frozen=True, slots=True)
class Requirement:
    """``deed`` to ``path`` needs ``permission`` in the ACL of ``node``."""

    deed: str
    path: str
    permission: str
    node: str


def requirement_of(operation: object) -> Requirement | None:
    """What one operation of the protocol needs; ``None`` for what needs nothing."""
    match operation:
        case core.Get(path) | core.Check(path):
            return Requirement("read", path, "READ", path)
        case core.Children(path):
            return Requirement("list", path, "READ", path)
        case core.SetData(path):
            return Requirement("set the data of", path, "WRITE", path)
        case core.Create(path):
            return Requirement("create", path, "CREATE", _parent(path))
        case core.Delete(path):
            return Requirement("delete", path, "DELETE", _parent(path))
    return None


def refusal(operation: object, error: Exception, chroot: str) -> AccessDenied:
    """What to raise for kazoo's NoAuth, InvalidACL and AuthFailed errors: says what was refused and what to grant.

    ``operation`` is the single one that was refused, not the transaction around it.
    """
    requirement = requirement_of(operation)
    if requirement is None or isinstance(error, exceptions.AuthFailedError):
        return AccessDenied("ZooKeeper refuses the credentials of this client: docs/security.md says how to give them")
    refused = f"ZooKeeper refuses to {requirement.deed} {chroot}{requirement.path}"
    if isinstance(error, exceptions.InvalidACLError):
        return AccessDenied(
            f"{refused}: the acl= of the lock is not valid for this client. Is it empty, or made for clients that have "
            "authenticated themselves (CREATOR_ALL_ACL) while this one has not?",
            path=requirement.path,
        )
    node = requirement.node if requirement.node != "/" or not chroot else ""
    return AccessDenied(
        f"{refused}: this client has no {requirement.permission} permission on {chroot}{node}. Give it the credentials "
        "that have, or change the ACL of that node (setAcl); docs/security.md lists what zkfence needs where",
        path=requirement.path,
        permission=requirement.permission,
    )


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
