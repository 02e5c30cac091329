"""Acquiring: the recipe, once for every kind of lock. The design, 'The recipe', gives the reasons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from .._errors import ForeignNode
from ._attempt import Attempt
from ._counter import CounterPath
from ._layout import CEILING, contender_name, contenders_in, counter_path, sequence_of
from ._leaving import delete_surely, guid_of, own_nodes
from ._opening import find_epoch
from ._operations import (
    Children,
    ConnectionLost,
    Create,
    Created,
    Failure,
    Get,
    Jitter,
    Listing,
    Node,
    NodeExists,
    NoNode,
    Read,
    Ready,
    SessionLost,
    Steps,
    Wait,
    fly,
    land,
    read,
)
from ._queue import Granted, Queue, StartOver, WouldWait
from ._surroundings import Surroundings


class Procedure(Protocol):
    """A way to a grant."""

    @property
    def attempts(self) -> Sequence[Attempt]:
        """All that may have left a node so far, in the order in which they are to be left."""

    def run(self) -> Steps[Granted | None]:
        """Queue, wait for the turn, be granted. ``None`` where it would have to wait and must not.

        The caller leaves (`leave`) every attempt whenever this does not return a grant.
        """


class Acquisition:
    """One run of the recipe. ``memory`` is what the lock remembers, and afterwards what it should."""

    def __init__(
        self,
        attempt: Attempt,
        surroundings: Surroundings,
        memory: CounterPath | None,
        *,
        fresh_id: Callable[[], str],
        wait: bool = True,
        ceiling: int = CEILING,
    ) -> None:
        self.memory = memory
        self._attempt = attempt
        self._surroundings = surroundings
        self._fresh_id = fresh_id
        self._wait = wait
        self._ceiling = ceiling

    @property
    def attempts(self) -> Sequence[Attempt]:
        return (self._attempt,)

    def run(self) -> Steps[Granted | None]:
        """See `Procedure`."""
        tries = 0
        while True:
            try:
                return (yield from self._once())
            except SessionLost:
                self._attempt.session_lost()
                self.memory = None
            except StartOver:
                self._attempt.gone()
                self.memory = None
            except WouldWait:
                return None
            yield Jitter(tries)
            tries += 1

    def _once(self) -> Steps[Granted | None]:
        attempt = self._attempt
        if self.memory is not None and self.memory.session_id != self._surroundings.session_id:
            self.memory = None
        epoch = self.memory.epoch if self.memory else (yield from find_epoch(attempt, self._fresh_id()))
        while True:
            look = yield from self._enter(epoch)
            number = sequence_of(attempt.path) if attempt.path else -1
            if 0 <= number < self._ceiling:
                break
            self.memory = None
            epoch = yield from find_epoch(attempt, self._fresh_id(), closed=epoch, missing=not attempt.path)
            if attempt.path:  # somebody else has rolled the lock: the node in the closed path is of no use
                yield from delete_surely(attempt.path, attempt.czxid)
                attempt.gone()
        if self.memory is None or (look is not None and look.stat.czxid != self.memory.czxid):
            self.memory = CounterPath(epoch, attempt.session_id)
        self.memory.next_number = number + 1
        queue = Queue(attempt, self._surroundings, self.memory, number, wait=self._wait, ceiling=self._ceiling)
        try:
            return (yield from queue.run(look))
        finally:
            self.memory = queue.memory

    # --- entering -----------------------------------------------------------------------------------------------

    def _enter(self, epoch: int) -> Steps[Node | Listing | None]:
        """Make the own node; in the same flight, look at the counter path, and watch the own node where its name can be
        guessed. Where others were there last time, one look behind the predecessor's leaving will do.

        Returns the look, ``None`` if there is none. No own node afterwards: there is no such counter path.
        """
        attempt, memory = self._attempt, self.memory
        counter = counter_path(attempt.lock_path, epoch)
        guess = ""
        if memory is not None and memory.crowd <= 1 and memory.next_number is not None:
            guess = f"{counter}/{contender_name(attempt.kind.prefix, memory.next_number)}"
        create = Create(f"{counter}/{attempt.kind.prefix}", attempt.data, contender=True)
        reads: list[Read] = []
        if memory is None or memory.crowd <= 1 or not attempt.kind.last or not self._wait:
            reads.append(Get(counter) if attempt.kind.last else Children(counter))
        if guess:
            reads.append(Get(guess, watch=True))
        tries = 0
        while True:
            yield Ready()  # what is not sent need not be looked for afterwards
            connection = self._surroundings.connection
            attempt.creating(epoch)
            landed = yield from fly(create, *reads)
            outcome: Any = landed.results[0]
            look: Any = landed.results[1] if reads else None
            if isinstance(outcome, NoNode):
                attempt.gone()
                return None
            if isinstance(outcome, NodeExists):
                found = yield from self._after_node_exists(epoch, counter)
                if not found:
                    yield Jitter(tries)
                    tries += 1
                    continue
                outcome, look = found, None
            elif isinstance(outcome, ConnectionLost):
                attempt.lost_creates = True
                found = yield from self._own_node()
                if not found:
                    continue
                outcome, look = found, None
            created: Created = land(outcome)
            attempt.queued(created, self._surroundings.session_id)
            if look is None or isinstance(look, Failure):
                return None
            if guess == created.path:
                own = landed.results[2]
                if isinstance(own, Node) and own.stat.czxid == attempt.czxid:
                    attempt.connection = connection
                    attempt.path = guess  # kazoo keeps this very text with the watch: one copy will do
            return cast(Node | Listing, land(look))

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
        current = yield from find_epoch(attempt, self._fresh_id())
        if current != epoch:
            raise StartOver
        (listing,) = yield from read(Children(counter))
        if isinstance(listing, NoNode):
            raise StartOver
        contenders = sorted(contenders_in(land(listing).names), reverse=True)
        for closing in contenders:
            if not 0 <= closing.number < self._ceiling:
                (node,) = yield from read(Get(f"{counter}/{closing.name}", watch=True))
                if not isinstance(node, NoNode):
                    if guid_of(land(node).data) is None:
                        raise ForeignNode(f"{counter}/{closing.name}")
                    if not self._wait:
                        raise WouldWait
                    yield Wait()  # its owner rolls the lock, or leaves
                    return None
        for contender in contenders:
            (node,) = yield from read(Get(f"{counter}/{contender.name}"))
            if not isinstance(node, NoNode):
                ours = land(node).stat.ephemeralOwner and guid_of(land(node).data) is not None
                if not ours:
                    raise ForeignNode(f"{counter}/{contender.name}")
        return None
