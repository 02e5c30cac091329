"""Exposure: tells when a namespace is open to everybody who can reach the servers."""

from __future__ import annotations

import ipaddress
import logging
import threading
from collections.abc import Sequence
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

from kazoo.client import KazooClient
from kazoo.interfaces import IAsyncResult
from kazoo.security import ACL, Permissions

from ._core._layout import Layout

# A logger of its own, so that whoever knows can silence this one warning. Not Python's warnings: this is for the people
# who run the workers, it comes in the background, where a warning that is an error has nobody to reach, and it has to
# be told for each namespace.
_log: Final = logging.getLogger("zkfence.exposure")

_CHANGES: Final = {
    "write": Permissions.WRITE,
    "create": Permissions.CREATE,
    "delete": Permissions.DELETE,
    "admin": Permissions.ADMIN,
}

_looked_at: Final[WeakKeyDictionary[KazooClient, set[str]]] = WeakKeyDictionary()
_looking: Final = threading.Lock()


def tell_if_exposed(client: KazooClient, layout: Layout, acl: Sequence[ACL] | None) -> None:
    """Log a warning if anybody may change the namespace; once per client and namespace.

    Asks ZooKeeper in the background: never waits, and never raises for what ZooKeeper answers or does not. On servers
    that are all on the loopback interface it is told as INFO: there, an open namespace is what tests and first steps
    have. An ``acl`` that is open to the world itself means that it is open on purpose: nothing is told.
    """
    if _open_permissions(acl or ()):
        return
    with _looking:
        looked_at = _looked_at.setdefault(client, set())
        if layout.namespace in looked_at:
            return
        looked_at.add(layout.namespace)
    _Look(client, layout).begin()


class _Look:
    """One look at the nodes that decide what the next tokens are."""

    def __init__(self, client: KazooClient, layout: Layout) -> None:
        self._client = client
        self._namespace = layout.namespace
        self._awaited = [layout.namespace, layout.locks, layout.epoch]
        self._open: dict[str, list[str]] = {}

    def begin(self) -> None:
        for path in list(self._awaited):
            self._client.get_acls_async(path).rawlink(partial(self._answered, path))

    def _answered(self, path: str, answer: IAsyncResult) -> None:
        """kazoo calls this in one thread, in the order of the requests."""
        try:
            acls, _ = answer.get(block=False)
        except Exception as error:  # it may not be read, or was deleted, or the connection is lost
            _log.debug("who may change %s cannot be told: %r", path, error)
        else:
            if permissions := _open_permissions(acls):
                self._open[path] = permissions
        self._awaited.remove(path)
        if self._open and not self._awaited:
            self._tell()

    def _tell(self) -> None:
        _log.log(
            logging.INFO if _is_local(self._client) else logging.WARNING,
            "namespace %s is open to everybody who can reach ZooKeeper at %s: world:anyone may %s. They can forge "
            "fencing tokens, and take or break every lock. Make locks with acl=, and change the ACLs of the nodes that "
            "are there (setAcl -R). See docs/security.md; acl=OPEN_ACL_UNSAFE says that it is meant to be open",
            self._namespace,
            ",".join(f"{host}:{port}" for host, port in self._client.hosts) + (self._client.chroot or ""),
            "; ".join(f"{', '.join(permissions)} at {path}" for path, permissions in self._open.items()),
        )


def _open_permissions(acls: Sequence[ACL]) -> list[str]:
    """What anybody may do to a node with these ACLs, besides reading it."""
    given = 0
    for acl in acls:
        if (acl.id.scheme, acl.id.id) == ("world", "anyone"):
            given |= acl.perms
    return [name for name, permission in _CHANGES.items() if given & permission]


def _is_local(client: KazooClient) -> bool:
    return all(_is_loopback(host) for host, _ in client.hosts)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
