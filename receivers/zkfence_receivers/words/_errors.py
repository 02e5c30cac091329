"""The root of every error, and what a receiver may say.

::

    ZkfenceError
    ├── InvalidName            a lock or resource name that cannot be one
    ├── InvalidToken           not a fencing token
    ├── InvalidStamp           not a stamp, or one of a newer format
    ├── zkfence.LockError      the worker's side; drawn in zkfence
    └── ReceiverError
        ├── Refused            the destination said no; nothing was changed
        │   ├── StaleToken     an older holder: a newer one has claimed or written
        │   ├── TokenRegressed not an older holder, and yet a lower token: ZooKeeper has gone back
        │   ├── TokenCollision the same token from another holder
        │   ├── OutOfOrder     a late or re-used request of the same holder
        │   ├── WrongLock      the resource belongs to another lock
        │   │   └── WrongNamespace   … of another ensemble or namespace
        │   ├── ReadOnlyStamp  a reader's stamp on a change
        │   └── Unfenced       data that was there before zkfence
        ├── AlreadyApplied     a duplicate whose reply was too large to keep
        ├── MarkCorrupt        the mark cannot be read; a person has to look
        ├── OutcomeUnknown     the store did not answer; the change may be there
        ├── StoreBusy          somebody else kept the resource locked
        ├── StoreFailed        the store could not do it; nothing was changed
        └── UnsafeStore        the store cannot keep the promise; nothing was sent

None of them derives from an error class that retry helpers commonly retry
(``ConnectionError``, ``OSError``, a driver's operational errors): a refused
request is never worth repeating.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._mark import Mark
    from ._stamp import Stamp


class ZkfenceError(Exception):
    """The root of everything that zkfence and its receivers raise on purpose. All of them can be pickled."""

    def __reduce__(self) -> tuple[object, ...]:
        # The default would call the class with the message alone, which breaks process pools.
        return _restore, (type(self), self.args, self.__dict__.copy())


def _restore(error: type[ZkfenceError], args: tuple[object, ...], attributes: dict[str, object]) -> ZkfenceError:
    restored = error.__new__(error)
    restored.args = args
    restored.__dict__.update(attributes)
    return restored


class InvalidName(ZkfenceError, ValueError):
    """A name of a lock or a resource is empty, too long or not text."""


class InvalidToken(ZkfenceError, ValueError):
    """A value is not a fencing token: an integer from 1 to 2**63-1, or its canonical decimal text."""


class InvalidStamp(ZkfenceError, ValueError):
    """A stamp cannot be read, lacks a field, or has a format version that is newer than this library."""


class ReceiverError(ZkfenceError):
    """The root of what receivers raise. ``resource`` is the resource's name."""

    def __init__(self, resource: str, message: str) -> None:
        super().__init__(message)
        self.resource = resource


class Refused(ReceiverError):
    """The destination refused a request; its data and its mark are as before.

    ``stamp`` is what was sent; ``mark`` is what the destination remembers, ``None`` where it has no mark.
    """

    def __init__(self, resource: str, stamp: Stamp, mark: Mark | None) -> None:
        super().__init__(resource, self._explain(resource, stamp, mark))
        self.stamp = stamp
        self.mark = mark

    def _explain(self, resource: str, stamp: Stamp, mark: Mark | None) -> str:
        raise NotImplementedError


class StaleToken(Refused):
    """A newer holder has claimed or written the resource: this one's lease is over, whatever it believes."""

    def _explain(self, resource: str, stamp: Stamp, mark: Mark | None) -> str:
        assert mark is not None
        known = mark.token if mark.written is None or stamp.mode == "write" else mark.written
        return (
            f"{resource!r}: token {stamp.token.dotted} is older than {known.dotted}, which the store has already seen. "
            "Another worker took over: stop, throw this result away, and acquire the lock again if there is work left"
        )


class TokenRegressed(Refused):
    """The store has seen a larger token than this grant's, although nobody has had the lock since.

    ZooKeeper confirmed after the refusal that the grant still held its lock, so no later grant can have had a later
    token: ZooKeeper was restored from an older copy of its data, or somebody forged the token that the store knows. To
    acquire again does not help, which is why this is no `StaleToken`; a person has to look, and run ``command``.

    Only a claim by an exclusive or write grant is looked into: no reader gets this, nor does a stamp from elsewhere.
    """

    def __init__(self, resource: str, stamp: Stamp, mark: Mark | None, *, where: str = "") -> None:
        """``where``: the options that tell the command which ensemble and namespace it is about."""
        assert mark is not None
        self.command = f"zkfence epoch raise --above {mark.token.dotted}{where and ' '}{where}"
        super().__init__(resource, stamp, mark)

    def _explain(self, resource: str, stamp: Stamp, mark: Mark | None) -> str:
        assert mark is not None
        return (
            f"{resource!r}: token {stamp.token.dotted} is lower than {mark.token.dotted}, which the store has already "
            f"seen, but ZooKeeper confirms that nobody has had the lock {stamp.lock!r} since: it was restored from an "
            f"older copy of its data, or {mark.token.dotted} is forged. Acquiring again does not help. If it was "
            f"restored, go on above all that was issued before: `{self.command}`"
        )


class TokenCollision(Refused):
    """Two holders carry the same token: an ensemble was restored from a backup, or a token was forged."""

    def _explain(self, resource: str, stamp: Stamp, mark: Mark | None) -> str:
        assert mark is not None
        return (
            f"{resource!r}: token {stamp.token.dotted} was already used by holder {mark.holder!r}, "
            f"and now comes from {stamp.holder!r}. Was ZooKeeper restored from a backup? "
            "Acquire the lock again: a newer token is accepted"
        )


class OutOfOrder(Refused):
    """A request with this number, or a later one, was already accepted from the same grant.

    On a retry it means: unknown, a later request of yours has overtaken it.
    """

    def _explain(self, resource: str, stamp: Stamp, mark: Mark | None) -> str:
        assert mark is not None
        return (
            f"{resource!r}: request {stamp.op} of token {stamp.token.dotted} comes after request {mark.op} "
            "was accepted, and is not a copy of it. It was not applied now; read the resource before deciding "
            "what to do, and send one request at a time with a number of its own"
        )


class WrongLock(Refused):
    """The resource is pinned to another lock; tokens of different locks cannot be compared."""

    def _explain(self, resource: str, stamp: Stamp, mark: Mark | None) -> str:
        assert mark is not None
        return (
            f"{resource!r} is guarded by lock {mark.lock!r}, but the request was made under {stamp.lock!r}. "
            "Use the lock that the resource belongs to, or another resource name"
        )


class WrongNamespace(WrongLock):
    """The resource is pinned to a lock of another ZooKeeper namespace (another ensemble, or one made anew).

    ``command`` makes a rebuilt ensemble go on where the lost one was; it must not be run where the other ensemble
    still lives. Empty where the pinned lock was none of zkfence's.
    """

    def __init__(self, resource: str, stamp: Stamp, mark: Mark | None) -> None:
        assert mark is not None
        namespace_id, slash, _ = mark.lock.partition("/")
        known = namespace_id and slash
        self.command = (
            f"zkfence namespace adopt --id {shlex.quote(namespace_id)} --above {mark.token.dotted}" if known else ""
        )
        super().__init__(resource, stamp, mark)

    def _explain(self, resource: str, stamp: Stamp, mark: Mark | None) -> str:
        assert mark is not None
        rebuilt = (
            "Was ZooKeeper made anew, and is the old one gone for good? Let the new one go on where the old one was: "
            f"`{self.command}` (with --zk and --namespace as the workers have them). "
        )
        return (
            f"{resource!r} is guarded by lock {mark.lock!r} of another ZooKeeper namespace than {stamp.lock!r} (what "
            "stands before the slash is the namespace's id), and their tokens cannot be compared. Is this the wrong "
            "ensemble, or the wrong namespace on it? Connect to the one that the resource belongs to. "
            f"{rebuilt if self.command else ''}"
            "Is the resource to move to this ensemble on purpose? Give the data a new place (another folder or prefix) "
            "and adopt() it there"
        )


class ReadOnlyStamp(Refused):
    """A stamp made for reading was sent with a change."""

    def _explain(self, resource: str, stamp: Stamp, mark: Mark | None) -> str:
        return f"{resource!r}: the stamp was made for reading and cannot change anything; use a write grant"


class Unfenced(Refused):
    """There is data, but no mark: it was written before zkfence, or the mark was removed or evicted."""

    def _explain(self, resource: str, stamp: Stamp, mark: Mark | None) -> str:
        return (
            f"{resource!r} has data that no mark speaks for: it was there before zkfence, was brought past the "
            "receiver, or its mark was removed. "
            "Make sure that nobody writes it without zkfence any more, then take it in with adopt()"
        )


class AlreadyApplied(ReceiverError):
    """The same request was applied before; it was not applied again, and its reply was too large to keep."""

    def __init__(self, resource: str, stamp: Stamp) -> None:
        super().__init__(
            resource,
            f"{resource!r}: request {stamp.op} of token {stamp.token.dotted} was applied when it first arrived; "
            "its reply was too large to keep. Read the resource if you need the result",
        )
        self.stamp = stamp


class MarkCorrupt(ReceiverError):
    """The mark is there but cannot be understood: nothing is accepted until a person has looked at it."""

    def __init__(self, resource: str, reason: str) -> None:
        super().__init__(
            resource,
            f"{resource!r}: the mark cannot be used ({reason}). Nothing was changed and nothing will be accepted; "
            "find out who changed it, and restore it to a value at least as high as the newest token",
        )
        self.reason = reason


class OutcomeUnknown(ReceiverError):
    """The store did not answer: the request may or may not have been applied.

    ``stamp`` is what was sent. After a claim, claim again. After a change that is counted, the same payload may be sent
    again under the same stamp (``apply_stamped``): it is applied once, however often it arrives. A change without
    ``op`` must not be sent again; read the resource.
    """

    def __init__(self, resource: str, stamp: Stamp, reason: str, *, claiming: bool = False) -> None:
        if claiming:
            what, advice = "the claim", "claim again"
        elif stamp.op is None:
            what, advice = "the change", "do not send it again, it is not counted; read the resource"
        else:
            what = f"request {stamp.op}"
            advice = "send the same payload again with the stamp of this error, or read the resource"
        super().__init__(
            resource,
            f"{resource!r}: no answer from the store ({reason}). Whether {what} was applied is unknown; {advice}",
        )
        self.stamp = stamp


class StoreBusy(ReceiverError):
    """The resource stayed locked by another request for the whole time allowed; nothing was changed."""


class StoreFailed(ReceiverError):
    """The store could not be reached or could not carry the request out, and nothing was changed: data and mark are as
    before. The message says why; the driver's error, where there is one, is the ``__cause__``."""


class UnsafeStore(ReceiverError):
    """The store is set up so that the receiver's promise cannot be kept; the message says which setting."""


class UnverifiedStore(UserWarning):
    """A store did not let itself be asked whether it keeps what it acknowledges; the message says what is unknown."""
