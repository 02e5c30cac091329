"""What the worker's side raises.

::

    ZkfenceError
    └── LockError
        ├── LockTimeout          the lock did not become free in time
        ├── LockLost             the grant is over: session lost or node deleted
        ├── GrantReleased        the grant was released here
        ├── ForkedError          the grant belongs to the process that forked
        ├── WouldDeadlock        the caller holds the lock already and would wait for itself
        ├── MixedKinds           the lock is in use as another kind of lock
        ├── TooManyLocks         the session has no room for another node
        ├── NotConnected         the client is not started, or closed
        ├── AccessDenied         ZooKeeper refuses: ACL or authentication
        ├── NamespaceDamaged     a node is missing or unreadable; nothing was changed
        ├── MissingChroot        the path behind the hosts does not exist
        ├── ForeignNode          somebody else's node stands where a contender belongs
        ├── EpochExhausted       2**32 epochs were issued in the namespace
        ├── RepairRefused        a repair command would do harm, or is at the wrong place
        └── ZooKeeperFailed      ZooKeeper answered with an error that a lock cannot handle
"""

from __future__ import annotations

from zkfence_receivers.words import ZkfenceError


class LockError(ZkfenceError):
    """The root of what the worker's side raises."""


class LockTimeout(LockError):
    """The lock did not become free before the deadline; nothing of this acquisition stays behind.

    ``lock_name`` and ``timeout`` (seconds) are those of the call.
    """

    def __init__(self, lock_name: str, timeout: float) -> None:
        super().__init__(f"lock {lock_name!r} was not free within {timeout:g} s; try again, or allow more time")
        self.lock_name = lock_name
        self.timeout = timeout


class LockLost(LockError):
    """The grant is over, and another worker may hold the lock. Terminal: acquire again for a new token."""

    def __init__(self, lock_name: str, reason: str) -> None:
        super().__init__(
            f"the grant of lock {lock_name!r} is lost: {reason}. Stop this work; acquire again if there is work left"
        )
        self.lock_name = lock_name
        self.reason = reason


class GrantReleased(LockError):
    """The grant was released in this process; its token must not be used any more."""

    def __init__(self, lock_name: str) -> None:
        super().__init__(f"the grant of lock {lock_name!r} was released; acquire again for a new token")
        self.lock_name = lock_name


class ForkedError(LockError):
    """A child process holds nothing of what its parent holds."""

    def __init__(self, lock_name: str) -> None:
        super().__init__(
            f"the grant of lock {lock_name!r} belongs to the parent process; "
            "connect and acquire in the child, or send it a stamp"
        )
        self.lock_name = lock_name


class WouldDeadlock(LockError):
    """The same thread or task holds the lock already, and would wait for itself for ever."""

    def __init__(self, lock_name: str, held: str) -> None:
        super().__init__(
            f"this thread or task holds {held} of lock {lock_name!r} already and would wait for itself: pass its grant "
            "on, release it first, or make the lock with reentrant=True"
        )
        self.lock_name = lock_name
        self.held = held


class MixedKinds(LockError):
    """One name is used for locks of different kinds, or for semaphores with different numbers of permits, at once.

    ``path`` is the node of the other one. Nothing of this acquisition stays behind.
    """

    def __init__(self, lock_name: str, path: str) -> None:
        super().__init__(
            f"lock {lock_name!r} is in use as another kind of lock, or with another number of permits ({path}). "
            "Use one kind per name, and let the others finish before you change it"
        )
        self.lock_name = lock_name
        self.path = path


class TooManyLocks(LockError):
    """The session's nodes have taken all the room that one session may take; nothing was sent.

    When a session ends, ZooKeeper lists its nodes in one record; one that is larger than ``jute.maxbuffer`` (1 MB)
    takes the whole ensemble down (ZOOKEEPER-4306). ``limit`` is in bytes.
    """

    def __init__(self, lock_name: str, limit: int) -> None:
        super().__init__(
            f"no room for lock {lock_name!r}: the paths of this session's nodes have {limit} bytes already, and a "
            "session that ends with more of them could stop the ensemble. Use shorter names, or further clients"
        )
        self.lock_name = lock_name
        self.limit = limit


class NotConnected(LockError):
    """There is no ZooKeeper session to work with: the client was never started, or it is closed."""


class AccessDenied(LockError):
    """ZooKeeper refuses the operation to this client: its ACL or authentication does not permit it.

    ``path`` is the node that it was about, and ``permission`` what the client lacks there (CREATE and DELETE: on the
    node above it), as ZooKeeper calls it; both empty where that cannot be told.
    """

    def __init__(self, message: str, *, path: str = "", permission: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.permission = permission


class NamespaceDamaged(LockError):
    """A node of the namespace is missing or cannot be understood. ``path`` is the node; nothing was changed."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"{path}: {reason}. Nothing was changed, because a fresh start could issue old tokens again. "
            "Was the namespace deleted halfway? Then delete the rest of it. Otherwise restore the node from a backup, "
            "or use another namespace (receivers will then ask for new resources)"
        )
        self.path = path
        self.reason = reason


class MissingChroot(LockError):
    """The chroot of the connection string does not exist, and cannot be made from inside it."""

    def __init__(self) -> None:
        super().__init__("the path behind the hosts (the chroot) does not exist in ZooKeeper: create it first")


class ForeignNode(LockError):
    """A node that zkfence did not make stands where the next contender belongs. ``path`` is that node."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} was not made by this lock and blocks it: nothing else may live there. Find out who made it, "
            "and delete it"
        )
        self.path = path


class EpochExhausted(LockError):
    """The namespace has issued 2**32 epochs; use another namespace, and do not name locks after jobs."""

    def __init__(self, namespace: str) -> None:
        super().__init__(
            f"namespace {namespace} has issued its last epoch; use another namespace, and fewer lock names that are new"
        )
        self.namespace = namespace


class RepairRefused(LockError):
    """A repair would probably do harm, or has nothing to work on; nothing was changed."""


class ZooKeeperFailed(LockError):
    """ZooKeeper answered with an error that no lock can handle; the cause is chained."""
