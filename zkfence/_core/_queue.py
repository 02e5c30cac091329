"""Queue: a contender's wait for its turn in one counter path."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Final, NamedTuple

from zkfence_receivers.words import Token

from .._errors import ForeignNode, MixedKinds
from ._attempt import Attempt
from ._counter import CounterPath
from ._kinds import Ahead
from ._layout import (
    contender_name,
    contenders_in,
    counter_path,
    epochs_in,
    load_namespace_id,
    load_watermark,
    sequence_of,
)
from ._operations import (
    Check,
    Children,
    ConnectionLost,
    Exists,
    Get,
    Jitter,
    Listing,
    Multi,
    Node,
    NoNode,
    Read,
    SessionLost,
    Steps,
    Wait,
    fly,
    land,
    read,
    read_many,
)
from ._surroundings import Surroundings

_PROOF_SHARE: Final = 4  # a grant starts with at least this share of the session timeout to live
_CROWD: Final = 16  # a listing of so many contenders costs less than to do without one


class Granted(NamedTuple):
    token: Token
    attempt: Attempt
    namespace_id: str
    slot: int | None = None


class StartOver(Exception):
    """The own node is gone, or what was remembered is not true any more: queue anew."""


class WouldWait(Exception):
    """Somebody else has to leave first, and waiting is not wanted."""


class Queue:
    """One contender in one counter path.

    A *look* is a listing of the counter path, or for an exclusive contender its data and stat alone, which stay small
    however many wait: an only child has nobody ahead, a watermark says who is gone, and the predecessor's name is
    known.

    The own node is always seen *after* the look, and watched: so it was there at the look, and nobody who was ahead
    then can come back.
    """

    def __init__(
        self,
        attempt: Attempt,
        surroundings: Surroundings,
        memory: CounterPath,
        number: int,
        *,
        wait: bool,
        ceiling: int,
    ) -> None:
        self._attempt = attempt
        self._surroundings = surroundings
        self.memory = memory
        self._number = number
        self._wait = wait
        self._ceiling = ceiling
        self._counter = attempt.counter
        self._barrier = number - 1  # between it and the own number there is nobody
        self._was_barrier_seen = False
        self._needs_listing = False
        self._older: Sequence[Ahead] = ()
        self._watched: set[str] = set()  # of those ahead, on the connection with this number
        self._watched_on: int | None = None

    def run(self, look: Node | Listing | None) -> Steps[Granted]:
        """Wait until nobody blocks, and prove that the session is alive. ``look`` is what was seen behind the create.

        Raises `StartOver`, `WouldWait`, `SessionLost`.
        """
        if look is None and self._expects_company and (yield from self._watch([self._presumed()])):
            self._was_barrier_seen = True
            yield from self._wait_for([self._presumed()])
        if not self.memory.drained:
            look = None
        is_certain = self._is_watched
        while True:
            if look is None:
                look = yield from self._look()
                is_certain = True
            blockers = self._blockers_in(look)
            if blockers is None:
                self._needs_listing = True
            elif not blockers:
                if is_certain:
                    return (yield from self._grant())
            elif not self._wait:
                if isinstance(look, Listing):
                    raise WouldWait
                self._needs_listing = True  # who blocks is a guess
            elif (yield from self._watch(blockers)):
                self._was_barrier_seen = True
                yield from self._wait_for(blockers)
            elif isinstance(look, Node):
                self._needs_listing = True
            look = None

    @property
    def _expects_company(self) -> bool:
        """When others were there last time, the predecessor is looked for before anything else."""
        kind = self._attempt.kind
        return self._wait and kind.last and self.memory.drained and self.memory.crowd > 1

    def _presumed(self) -> Ahead:
        """The predecessor, if nobody is between."""
        prefix = self._attempt.kind.prefix
        return Ahead(prefix, f"{self._counter}/{contender_name(prefix, self._barrier)}")

    # --- looking ------------------------------------------------------------------------------------------------

    @property
    def _is_watched(self) -> bool:
        return self._attempt.connection == self._surroundings.connection

    def _look(self) -> Steps[Node | Listing]:
        """Look at the counter path, and at the own node behind it."""
        attempt, memory = self._attempt, self.memory
        self._older = () if memory.drained else (yield from self._in_older_epochs())
        small = not attempt.kind.last or memory.crowd <= _CROWD or not memory.drained or self._needs_listing
        reads: list[Read] = [Children(self._counter) if small else Get(self._counter)]
        connection = self._surroundings.connection
        watched = self._is_watched
        if not watched:
            reads.append(Get(attempt.path, watch=True))
        elif not small:
            reads.append(Exists(attempt.path))
        look, *own = yield from read(*reads)
        if isinstance(look, NoNode):
            raise StartOver
        if memory.czxid and land(look).stat.czxid != memory.czxid:
            # Made anew, before the own node was or after: look at both again, and forget what was known of the old one.
            self.memory = CounterPath(memory.epoch, attempt.session_id)
            attempt.connection = None
            return (yield from self._look())
        if not memory.czxid:
            yield from self._learn(land(look))
        if not watched:
            self._check_own(own[0], connection)
        elif not small and isinstance(own[0], NoNode):
            raise StartOver
        return look  # type: ignore[no-any-return]

    def _learn(self, look: Node | Listing) -> Steps[None]:
        """Remember this counter path, and the namespace that it is in."""
        memory = self.memory
        layout = self._attempt.layout
        (namespace,) = yield from read(Get(layout.namespace))
        if isinstance(namespace, NoNode) or land(namespace).stat.czxid > look.stat.czxid:
            raise StartOver  # made anew since the counter path was read
        memory.namespace_id = load_namespace_id(layout.namespace, land(namespace).data)
        memory.czxid = look.stat.czxid

    def _check_own(self, node: object, connection: int) -> None:
        """The own node was read, and is watched since."""
        if isinstance(node, NoNode) or land(node).stat.czxid != self._attempt.czxid:
            raise StartOver  # gone, or somebody else's in a namespace that was made anew
        self._attempt.connection = connection

    def _in_older_epochs(self) -> Steps[Sequence[Ahead]]:
        """Those who still stand in older epochs of the lock, the first one first."""
        lock = self._attempt.lock_path
        (found,) = yield from read(Children(lock))
        if isinstance(found, NoNode):
            raise StartOver
        epochs = [epoch for epoch in epochs_in(land(found).names) if epoch < self.memory.epoch]
        counters = [counter_path(lock, epoch) for epoch in epochs]
        listings = yield from read_many([Children(counter) for counter in counters])
        older: list[Ahead] = []
        for counter, listing in zip(counters, listings, strict=True):
            if not isinstance(listing, NoNode):
                older += self._ahead(counter, land(listing), self._ceiling)
        self.memory.drained = not older
        return older

    # --- deciding -----------------------------------------------------------------------------------------------

    def _blockers_in(self, look: Node | Listing) -> Sequence[Ahead] | None:
        """Who has to leave before it is our turn; without names, who is presumed to. ``None``: only a listing tells."""
        attempt, memory = self._attempt, self.memory
        kind = attempt.kind
        memory.crowd = look.stat.numChildren  # and may be another number at once: threads share the memory
        if isinstance(look, Node):
            if look.stat.numChildren == 1 or load_watermark(look.data) >= self._barrier:
                return ()
            if self._was_barrier_seen:
                return None
            return [self._presumed()]
        self._needs_listing = False
        if attempt.path.rpartition("/")[2] not in look.names:
            raise StartOver
        ahead = self._ahead(self._counter, look, self._number)
        if ahead and kind.last:
            self._barrier = sequence_of(ahead[-1].path)
        for each in (*self._older, *ahead):
            if each.prefix not in kind.family:
                raise MixedKinds(attempt.lock_name, each.path)
        return kind.blockers((*self._older, *ahead))

    def _ahead(self, counter: str, listing: Listing, before: int) -> list[Ahead]:
        contenders = sorted(each for each in contenders_in(listing.names) if 0 <= each.number < before)
        return [Ahead(each.prefix, f"{counter}/{each.name}") for each in contenders]

    def _watch(self, blockers: Sequence[Ahead]) -> Steps[bool]:
        """Watch the own node and those who block. Tells whether they are all still there.

        With get and not exists: a node that is not there leaves no watch behind.
        """
        connection, own_watched = self._surroundings.connection, self._is_watched
        if self._watched_on != connection:
            self._watched, self._watched_on = set(), connection
        paths = [each.path for each in blockers if each.path not in self._watched]
        reads = [Get(path, watch=True) for path in paths]
        if not own_watched:
            reads.append(Get(self._attempt.path, watch=True))
        nodes = yield from read_many(reads)
        if not own_watched:
            self._check_own(nodes.pop(), connection)
        there: list[str] = []
        for path, node in zip(paths, nodes, strict=True):
            if not isinstance(node, NoNode):
                if not land(node).stat.ephemeralOwner:
                    raise ForeignNode(path)  # no contender: it would never leave
                there.append(path)
        self._watched.update(there)
        return len(there) == len(paths)

    def _wait_for(self, blockers: Sequence[Ahead]) -> Steps[None]:
        """Wait for a change of a blocker, the own node or the connection.

        A wrong guess of the own node's name has left a watch too: a crowd that arrives at once guesses the same name,
        and all of it would look when that one node goes.
        """
        awaited = {"", self._attempt.path, *(each.path for each in blockers)}
        fired: Set[str] = yield Wait()
        self._watched -= fired  # a watch fires once
        while fired and awaited.isdisjoint(fired):
            fired = yield Wait()
            self._watched -= fired
        if self._attempt.path in fired:
            self._attempt.connection = None

    # --- being granted ------------------------------------------------------------------------------------------

    def _grant(self) -> Steps[Granted]:
        attempt, memory = self._attempt, self.memory
        yield from self._prove()
        if attempt.session_id != self._surroundings.session_id:
            raise SessionLost  # a server that lags may still show the node
        if attempt.kind.last and memory.crowd > _CROWD:
            attempt.watermark = self._number
        return Granted(Token.of(memory.epoch, self._number), attempt, memory.namespace_id)

    def _prove(self) -> Steps[None]:
        """See to it that a quorum write of this session is young enough to build a grant on.

        Reads prove nothing: a server that is cut off from its leader goes on answering them.
        """
        tries = 0
        while self._surroundings.remaining() < self._surroundings.session_timeout / _PROOF_SHARE:
            if tries:  # the process stood still: one write is not enough then, but some more in half a tick are
                yield Jitter(tries)
            tries += 1
            landed = yield from fly(Multi((Check(self._attempt.path),)))
            (result,) = landed.results
            if isinstance(result, NoNode):
                raise StartOver
            if not isinstance(result, ConnectionLost):
                land(result)
