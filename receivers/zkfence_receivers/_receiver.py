"""Receiver and Handle: the contract that every store keeps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from .words import (
    Action,
    AlreadyApplied,
    Claimant,
    Decision,
    Diagnosing,
    Mark,
    MarkCorrupt,
    StaleToken,
    Stamp,
    StampedClaimant,
    Stamps,
    Verdict,
    admit,
    check_name,
    digest_of,
    refusal,
)


@dataclass(frozen=True, slots=True)
class Request:
    """One stamped request, checked and ready for a store.

    ``claimed``: the stamp's token has claimed the resource, so a store that has no mark of at least that token has
    forgotten an acknowledged claim (it was flushed, or restored from a copy), and must not go on.
    """

    resource: str
    action: Action
    stamp: Stamp
    payload: bytes = b""
    claimed: bool = False

    @property
    def digest(self) -> str:
        return digest_of(self.action, self.payload)

    def judge(self, mark: Mark | None, *, data_present: bool) -> Decision:
        """`admit`, with refusals raised."""
        forgotten = not data_present if mark is None else mark.token < self.stamp.token
        if self.claimed and forgotten:
            raise MarkCorrupt(self.resource, "the store has forgotten a claim that it had acknowledged")
        decision = admit(mark, self.stamp, self.action, self.digest, data_present=data_present)
        self.raise_refusal(decision.verdict, decision.mark)
        return decision

    def raise_refusal(self, verdict: Verdict, mark: Mark | None) -> None:
        """Raise what ``verdict`` stands for; return where the request was admitted or is a duplicate."""
        error = refusal(verdict, self.resource, self.stamp, mark)
        if error is not None:
            raise error
        if verdict is Verdict.DUPLICATE and mark is not None and mark.reply is None:
            raise AlreadyApplied(self.resource, self.stamp)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a store answered.

    ``data`` is what a read found, ``None`` where there is nothing.
    ``existed`` tells, for a deletion, whether there was something to delete.
    ``duplicate`` tells that this request had been applied before, and was not applied again.
    """

    data: bytes | None = None
    existed: bool = False
    duplicate: bool = False


EXISTED, ABSENT = b"1", b"0"  # a deletion's reply, as the mark keeps it


class Receiver(ABC):
    """A store that compares every request's token with a durable mark and changes data and mark in one atomic step,
    or refuses.

    Guaranteed: once `claim` has returned, no request with an older token is accepted, not even after the store was
    killed and restarted. Not guaranteed: anything about those who reach the store past the receiver.

    A receiver may be shared by threads; the changes of one grant on one resource are sent one after another, whichever
    handle they come through. Errors are drawn in ``zkfence_receivers.words``; each leaves the data and the last op as
    they were (the mark may already have the newer token), but for `OutcomeUnknown`.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027  # most receivers have nothing of their own
        """Give back what the receiver itself has opened; a client that it was given stays open."""

    def claim(self, resource: str, grant: Claimant | Stamp) -> Handle:
        """Tell the store of the new holder, durably, and get a handle that reads and writes.

        From here on no older token can write ``resource``. Claim before you read: what you read afterwards cannot
        change under you. A `Stamp` from elsewhere may stand for the grant; one stamp claims once.

        Raises `StaleToken` where a newer holder was here first, `TokenRegressed` where there was none and the token is
        too low all the same, `WrongLock` where the resource belongs to another lock, `Unfenced` where there is data
        without a mark.
        """
        return self._take(Action.CLAIM, resource, grant)

    def adopt(self, resource: str, grant: Claimant | Stamp) -> Handle:
        """Claim data that was there before zkfence, on purpose. The data stays as it is.

        Where the resource has a mark already, this is `claim`.
        """
        return self._take(Action.ADOPT, resource, grant)

    def apply_stamped(self, resource: str, payload: bytes | None, stamp: Stamp) -> Reply:
        """Apply one raw stamped write (``None`` deletes), for a service that receives stamps from its clients.

        The same stamp with the same payload may be sent again: it is applied once.
        """
        check_name(resource, "resource")
        check_stamp(stamp)
        if payload is None:
            return self._perform(Request(resource, Action.DELETE, stamp))
        return self._perform(Request(resource, Action.WRITE, stamp, check_payload(payload)))

    @abstractmethod
    def mark(self, resource: str) -> Mark | None:
        """What the store remembers of ``resource``; ``None`` where nobody has claimed it. Raises `MarkCorrupt`."""

    @abstractmethod
    def _perform(self, request: Request) -> Reply:
        """Judge and carry out one request in one atomic step, durable before the return."""

    def _take(self, action: Action, resource: str, grant: Claimant | Stamp) -> Handle:
        check_name(resource, "resource")
        if isinstance(grant, Stamp):
            grant = StampedClaimant(grant)
        elif not hasattr(grant, "stamps"):
            raise TypeError(f"a Grant or a Stamp claims a resource, not {type(grant).__name__} {grant!r}")
        stamps = grant.stamps(resource)
        stamps.check()
        try:
            with stamps.turn:
                self._perform(Request(resource, action, stamps.take()))
        except StaleToken as error:
            diagnosed = grant.diagnose(error) if isinstance(grant, Diagnosing) else error
            if diagnosed is error:
                raise
            raise diagnosed from error
        return Handle(self, resource, stamps)


class Handle:
    """A claimed resource: reads and writes that carry the grant's token.

    Every method raises what the grant raises where it is known to be over (before anything is sent), and `StaleToken`
    where the store has heard of a newer holder.
    """

    def __init__(self, receiver: Receiver, resource: str, stamps: Stamps) -> None:
        self._receiver = receiver
        self._stamps = stamps
        self.resource = resource

    def read(self) -> bytes | None:
        """The resource's data, ``None`` where there is none."""
        request = Request(self.resource, Action.READ, self._stamps.reading(), claimed=True)
        return self._receiver._perform(request).data

    def write(self, data: bytes) -> None:
        """Replace the resource's data. When it returns, data and mark are durable."""
        self._change(Action.WRITE, check_payload(data))

    def delete(self) -> bool:
        """Delete the resource's data; the mark stays, for ever. Tells whether there was any."""
        return self._change(Action.DELETE).existed

    def _change(self, action: Action, payload: bytes = b"") -> Reply:
        self._stamps.check()  # before the turn too: in a forked child it may never come
        with self._stamps.turn:
            return self._receiver._perform(Request(self.resource, action, self._stamps.take(), payload, claimed=True))


def check_payload(data: bytes) -> bytes:
    """``data`` as bytes; raises TypeError for anything that is not bytes-like, text above all."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"a receiver stores bytes, not {type(data).__name__}; encode it first")
    return bytes(data)


def check_stamp(stamp: Stamp) -> None:
    if not isinstance(stamp, Stamp):
        raise TypeError(f"a Stamp is needed, not {type(stamp).__name__}; Stamp.from_json reads one from the wire")
