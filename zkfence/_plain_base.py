"""PlainBase: how a lock without permits is made, for threads and for tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kazoo.client import KazooClient
from kazoo.security import ACL

from ._core._kinds import Kind
from ._lock_base import LockBase


class PlainBase(LockBase):
    """A lock of one kind."""

    __slots__ = ()

    _of_kind: ClassVar[Kind]

    def __init__(
        self,
        client: KazooClient,
        name: str,
        *,
        namespace: str = "/zkfence",
        info: str = "",
        acl: Sequence[ACL] | None = None,
        reentrant: bool = False,
        session_timeout: float | None = None,
    ) -> None:
        """``name``: any text up to 255 bytes of UTF-8. ``namespace``: an absolute path; made when it is first needed.
        ``info``: a short text for people, shown with the contender. ``acl``: for everything that is created; kazoo's
        default where it is not given. ``reentrant``: a thread (or task) that holds the lock gets a further grant with
        the *same* token, and the last release gives the lock back; otherwise it is told by `WouldDeadlock`.
        ``session_timeout``: what the servers grant to this client, in seconds, where it is not known otherwise; the
        grant's deadline counts with it (`Grant.deadline_is_verified`), for all locks of the client.

        Raises `InvalidName`.
        """
        super().__init__(
            client,
            name,
            self._of_kind,
            namespace=namespace,
            info=info,
            acl=acl,
            reentrant=reentrant,
            session_timeout=session_timeout,
        )
