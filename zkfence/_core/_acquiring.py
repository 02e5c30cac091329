"""Acquiring: the recipe, once for every kind of lock. The design, 'The recipe', gives the reasons."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from zkfence_receivers.words import Token

from .._errors import ForeignNode
from ._attempt import Attempt
from ._layout import (
    CEILING,
    CONTENDER_PREFIX,
    contenders_in,
    counter_path,
    load_namespace_id,
    sequence_of,
)
from ._leaving import delete_surely, guid_of, own_nodes
from ._opening import find_epoch
from ._operations import (
    Check,
    Children,
    ConnectionLost,
    Create,
    Created,
    Failure,
    Get,
    Jitter,
    Listing,
    Multi,
    NodeExists,
    NoNode,
    Ready,
    SessionLost,
    Steps,
    Wait,
    fly,
    land,
    read,
)
from ._surroundings import Surroundings

_PROOF_SHARE: Final = 3  # a grant needs a quorum write younger than this share of the session timeout


@dataclass(frozen=True, slots=True)
class CounterPath:
    """What a client remembers of a lock between acquisitions.

    It holds for this very node in this very session: a namespace that was deleted and made anew issues its epochs
    again, and a wiped ensemble even its transaction ids.
    """

    epoch: int
    czxid: int
    session_id: int
    namespace_id: str
    drained: bool  # no older counter path has a contender below CEILING, and none can come


@dataclass(frozen=True, slots=True)
class Granted:
    token: Token
    path: str
    session_id: int
    namespace_id: str
    proved_at: float  # the session was alive at this moment of the clock: a quorum write sent then was acknowledged


class _StartOver(Exception):
    """The own node is gone, or never was, or what was remembered is not true any more: queue anew."""


class _WouldWait(Exception):
    """Somebody else has to leave first, and waiting is not wanted."""


class Acquisition:
    """One run of the recipe. ``memory`` is what the lock remembers, and afterwards what it should."""

    def __init__(
        self,
        attempt: Attempt,
        surroundings: Surroundings,
        memory: CounterPath | None,
        *,
        fresh_namespace_id: str,
        wait: bool = True,
        ceiling: int = CEILING,
    ) -> None:
        self.memory = memory
        self._attempt = attempt
        self._surroundings = surroundings
        self._fresh_namespace_id = fresh_namespace_id
        self._wait = wait
        self._ceiling = ceiling

    def run(self) -> Steps[Granted | None]:
        """Queue, wait for the turn, be granted. ``None`` where it would have to wait and must not.

        The caller leaves (`leave`) whenever this does not return a grant.
        """
        tries = 0
        while True:
            try:
                return (yield from self._once())
            except SessionLost:
                self._attempt.session_lost()
                self.memory = None
            except _StartOver:
                self._attempt.gone()
                self.memory = None
            except _WouldWait:
                return None
            yield Jitter(tries)
            tries += 1

    def _once(self) -> Steps[Granted | None]:
        attempt = self._attempt
        if self.memory is not None and self.memory.session_id != self._surroundings.session_id:
            self.memory = None
        epoch = self.memory.epoch if self.memory else (yield from find_epoch(attempt, self._fresh_namespace_id))
        while True:
            counter = counter_path(attempt.lock_path, epoch)
            created, listing, proved_at = yield from self._create(epoch, counter)
            if created is None:
                self.memory = None
                epoch = yield from find_epoch(attempt, self._fresh_namespace_id, closed=epoch, missing=True)
                continue
            number = sequence_of(created.path.rpartition("/")[2])
            assert number is not None
            if 0 <= number < self._ceiling:
                break
            self.memory = None
            epoch = yield from find_epoch(attempt, self._fresh_namespace_id, closed=epoch)
            if attempt.path:  # somebody else has rolled the lock: the node in the closed path is of no use
                yield from delete_surely(attempt.path, attempt.czxid)
                attempt.gone()
        yield from self._remember(epoch, counter, listing, created.stat.ephemeral_owner)
        return (yield from self._queue(epoch, counter, number, listing, proved_at))

    def _create(self, epoch: int, counter: str) -> Steps[tuple[Created | None, Listing, float]]:
        """Make the own node, and read the counter path behind it in the same flight. ``None``: no such path."""
        attempt = self._attempt
        nothing = Listing((), None)  # type: ignore[arg-type]  # never looked at
        tries = 0
        while True:
            yield Ready()  # what is not sent need not be looked for afterwards
            attempt.creating(counter)
            landed = yield from fly(
                Create(f"{counter}/{CONTENDER_PREFIX}", attempt.data, contender=True), Children(counter)
            )
            outcome, listing = landed.results
            if isinstance(outcome, NoNode):
                attempt.gone()
                return None, nothing, 0.0
            if isinstance(outcome, NodeExists):
                found = yield from self._after_node_exists(epoch, counter)
                if not found:
                    yield Jitter(tries)
                    tries += 1
                    continue
                outcome, landed = found, replace(landed, sent_at=float("-inf"))
            elif isinstance(outcome, ConnectionLost):
                attempt.lost_creates = True
                found = yield from self._own_node()
                if not found:
                    continue
                outcome, landed = found, replace(landed, sent_at=float("-inf"))
            created: Created = land(outcome)
            attempt.queued(created)
            if isinstance(listing, Failure) or landed.sent_at == float("-inf"):
                (listing,) = yield from read(Children(counter))
                if isinstance(listing, NoNode):
                    raise _StartOver
            return created, land(listing), landed.sent_at

    def _own_node(self) -> Steps[Created | None]:
        """The own node that a create without an answer may have made; of two, the lower one stays."""
        found = yield from own_nodes(self._attempt, self._surroundings)
        for surplus in found[1:]:
            yield from delete_surely(surplus.path, surplus.stat.czxid)
        return found[0] if found else None

    def _after_node_exists(self, epoch: int, counter: str) -> Steps[Created | None]:
        """The name that the counter gave is taken. ``None``: try again, perhaps in another epoch.

        It is never a proof that the path is closed: it may be the own node, or anybody's.
        """
        attempt = self._attempt
        found = yield from self._own_node()
        if found:
            return found
        current = yield from find_epoch(attempt, self._fresh_namespace_id)
        if current != epoch:
            raise _StartOver
        (listing,) = yield from read(Children(counter))
        if isinstance(listing, NoNode):
            raise _StartOver
        contenders = contenders_in(land(listing).names)
        closing = [name for number, name in contenders.items() if not 0 <= number < self._ceiling]
        for name in closing:
            (node,) = yield from read(Get(f"{counter}/{name}", watch=True))
            if not isinstance(node, NoNode):
                if guid_of(land(node).data) is None:
                    raise ForeignNode(f"{counter}/{name}")
                if not self._wait:
                    raise _WouldWait
                yield Wait()  # its owner rolls the lock, or leaves
                return None
        for _, name in sorted(contenders.items(), reverse=True):
            (node,) = yield from read(Get(f"{counter}/{name}"))
            if not isinstance(node, NoNode):
                ours = land(node).stat.ephemeral_owner and guid_of(land(node).data) is not None
                if not ours:
                    raise ForeignNode(f"{counter}/{name}")
        return None

    def _remember(self, epoch: int, counter: str, listing: Listing, session_id: int) -> Steps[None]:
        """Check that what is remembered is about this very counter path; learn it otherwise."""
        if self.memory is not None and self.memory.czxid == listing.stat.czxid:
            return
        self.memory = None
        layout = self._attempt.layout
        (namespace,) = yield from read(Get(layout.namespace))
        if isinstance(namespace, NoNode) or land(namespace).stat.czxid > listing.stat.czxid:
            raise _StartOver  # made anew since the counter path was read
        namespace_id = load_namespace_id(layout.namespace, land(namespace).data)
        self.memory = CounterPath(epoch, listing.stat.czxid, session_id, namespace_id, drained=False)

    def _queue(
        self, epoch: int, counter: str, number: int, listing: Listing | None, proved_at: float
    ) -> Steps[Granted | None]:
        """Wait until no contender blocks the own node, and prove that the session is alive."""
        attempt = self._attempt
        own = attempt.path
        while True:
            connection = self._surroundings.connection
            if listing is None:
                # The own node's watch is placed before the decision, so that its loss cannot be missed.
                node, listing_or_failure = yield from read(Get(own, watch=True), Children(counter))
            else:
                (node,) = yield from read(Get(own, watch=True))
                listing_or_failure = listing
            if isinstance(node, NoNode) or isinstance(listing_or_failure, NoNode):
                raise _StartOver
            if land(node).stat.czxid != attempt.czxid:
                raise _StartOver  # somebody else's, in a namespace that was made anew
            attempt.connection = connection
            assert self.memory is not None
            drained = self.memory.drained
            blocker = yield from self._blocker(epoch, counter, number, land(listing_or_failure))
            listing = None
            if blocker is not None:
                if not self._wait:
                    raise _WouldWait
                # With get and not exists: a node that is not there leaves no watch behind.
                (node,) = yield from read(Get(blocker, watch=True))
                if not isinstance(node, NoNode):
                    yield Wait()
                continue
            if not drained:
                continue  # looking at the older epochs took its time: see that the own node is still there
            proved_at = yield from self._prove(own, proved_at)
            if attempt.session_id != self._surroundings.session_id:
                raise SessionLost  # a server that lags may still show the node
            token = Token.of(epoch, number)
            return Granted(token, own, attempt.session_id, self.memory.namespace_id, proved_at)

    def _prove(self, own: str, proved_at: float) -> Steps[float]:
        """See to it that a quorum write of this session is young enough to build a grant on.

        Reads prove nothing: a server that is cut off from its leader goes on answering them.
        """
        while self._surroundings.now() - proved_at > self._surroundings.session_timeout / _PROOF_SHARE:
            landed = yield from fly(Multi((Check(own),)))
            (result,) = landed.results
            if isinstance(result, NoNode):
                raise _StartOver
            if not isinstance(result, ConnectionLost):
                land(result)
                proved_at = landed.sent_at
        return proved_at

    def _blocker(self, epoch: int, counter: str, number: int, listing: Listing) -> Steps[str | None]:
        """The nearest contender that has to leave first; ``None``: it is our turn."""
        assert self.memory is not None
        contenders = contenders_in(listing.names)
        if listing.stat.czxid != self.memory.czxid or contenders.get(number) != self._attempt.path.rpartition("/")[2]:
            raise _StartOver
        lower = max((other for other in contenders if 0 <= other < number), default=None)
        if lower is not None:
            return f"{counter}/{contenders[lower]}"
        if self.memory.drained:
            return None
        return (yield from self._blocker_in_older_epochs(epoch))

    def _blocker_in_older_epochs(self, epoch: int) -> Steps[str | None]:
        assert self.memory is not None
        (found,) = yield from read(Children(self._attempt.lock_path))
        if isinstance(found, NoNode):
            raise _StartOver
        older = sorted(
            (int(name) for name in land(found).names if name.isdecimal() and int(name) < epoch),
            reverse=True,
        )
        for old in older:
            counter = counter_path(self._attempt.lock_path, old)
            (listing,) = yield from read(Children(counter))
            if isinstance(listing, NoNode):
                continue
            contenders = contenders_in(land(listing).names)
            last = max((number for number in contenders if 0 <= number < self._ceiling), default=None)
            if last is not None:
                return f"{counter}/{contenders[last]}"
        self.memory = replace(self.memory, drained=True)
        return None
