"""A model of ZooKeeper, as small as the protocol lets it be.

One leader commits transactions one after another and keeps every state. A connection is served from a *view*, a state
that may lag behind; it executes its requests in order, and tells of watched nodes before it shows what has changed.
Sessions end on the leader without the client's knowledge. The sequence of a node ends at `END`, where it stands still.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

from zkfence._core import _operations as core

END = 9  # the last number that a sequence gives, again and again


@dataclass(frozen=True, slots=True)
class Entry:
    """A node, with the stat under ZooKeeper's names."""

    data: bytes
    czxid: int
    mzxid: int
    version: int = 0
    ephemeralOwner: int = 0  # noqa: N815
    numChildren: int = 0  # noqa: N815
    pzxid: int = 0
    sequence: int = 0


Tree = Mapping[str, Entry]


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def children_of(tree: Tree, path: str) -> list[str]:
    return [each.rpartition("/")[2] for each in tree if each != "/" and parent_of(each) == path]


class Draft:
    """A transaction under way: the next state, if all of it goes well."""

    def __init__(self, tree: Tree, zxid: int, session_id: int, random: Random) -> None:
        self.tree = dict(tree)
        self._zxid = zxid
        self._session_id = session_id
        self._random = random

    def apply(self, operation: object) -> object:
        match operation:
            case core.Create():
                return self.create(operation)
            case core.Delete(path):
                return self.delete(path)
            case core.SetData(path, data, version):
                entry = self._entry(path)
                if version not in (-1, entry.version):
                    raise core.BadVersion
                self.tree[path] = replace(entry, data=data, mzxid=self._zxid, version=entry.version + 1)
                return None
            case core.Check(path):
                self._entry(path)
                return None
            case core.Multi(parts):
                for index, part in enumerate(parts):
                    try:
                        self.apply(part)
                    except core.NoNode:
                        raise core.NoNode(index) from None
                return None
        raise AssertionError(operation)

    def create(self, create: core.Create) -> core.Created:
        parent_path = parent_of(create.path)
        parent = self._entry(parent_path)
        path, owner = create.path, 0
        if create.contender:
            owner = self._session_id
            path += self._next_number(parent.sequence)
        if path in self.tree:
            raise core.NodeExists
        self.tree[path] = Entry(create.data, self._zxid, self._zxid, ephemeralOwner=owner, pzxid=self._zxid)
        self.tree[parent_path] = replace(
            parent, numChildren=parent.numChildren + 1, pzxid=self._zxid, sequence=min(parent.sequence + 1, END)
        )
        return core.Created(path, self.tree[path])

    def _next_number(self, sequence: int) -> str:
        if sequence == END and self._random.random() < 0.2:
            return f"-{self._random.randrange(1, 4):09d}"  # seen where creates are pipelined over the end
        return f"{sequence:010d}"

    def delete(self, path: str) -> None:
        entry = self._entry(path)
        if entry.numChildren:
            raise core.NotEmpty
        del self.tree[path]
        parent = self.tree[parent_of(path)]
        self.tree[parent_of(path)] = replace(parent, numChildren=parent.numChildren - 1, pzxid=self._zxid)

    def delete_all(self, path: str) -> None:
        for child in children_of(self.tree, path):
            self.delete_all(f"{path}/{child}")
        self.delete(path)

    def _entry(self, path: str) -> Entry:
        try:
            return self.tree[path]
        except KeyError:
            raise core.NoNode from None


class Leader:
    """Every state there was; the last one is the truth."""

    def __init__(self, random: Random) -> None:
        self.states: list[Tree] = [{"/": Entry(b"", 0, 0)}]
        self.live: set[int] = set()
        self._random = random

    @property
    def zxid(self) -> int:
        return len(self.states) - 1

    @property
    def tree(self) -> Tree:
        return self.states[-1]

    def draft(self, session_id: int = 0) -> Draft:
        return Draft(self.tree, self.zxid + 1, session_id, self._random)

    def commit(self, draft: Draft) -> None:
        self.states.append(draft.tree)

    def write(self, operation: core.Operation, session_id: int) -> object:
        """A refusal is a transaction as well."""
        draft = self.draft(session_id)
        try:
            result = draft.apply(operation)
        except core.Failure as failure:
            self.states.append(self.tree)
            return failure
        self.commit(draft)
        return result

    def expire(self, session_id: int) -> None:
        self.live.discard(session_id)
        draft = self.draft()
        for path, entry in self.tree.items():
            if entry.ephemeralOwner == session_id:
                draft.delete(path)
        self.commit(draft)


@dataclass(slots=True)
class Request:
    """One operation under way; ``answer`` is called with its result, if that arrives."""

    operation: core.Operation
    flight: object
    index: int


@dataclass(slots=True)
class Connection:
    """What one server does for one client."""

    leader: Leader
    session_id: int
    view: int
    requests: deque[Request] = field(default_factory=deque)
    out: deque[str | tuple[Request, object, int]] = field(default_factory=deque)  # events, answers (with the view)
    watches: set[str] = field(default_factory=set)

    def advance(self) -> None:
        """See one more transaction."""
        before, after = self.leader.states[self.view], self.leader.states[self.view + 1]
        self.view += 1
        for path in sorted(self.watches):
            old, new = before.get(path), after.get(path)
            if old is None or new is None or (old.czxid, old.mzxid) != (new.czxid, new.mzxid):
                self.watches.discard(path)
                self.out.append(path)

    def catch_up(self, zxid: int) -> None:
        while self.view < zxid:
            self.advance()

    def execute(self) -> None:
        """The next request. A write is answered when this server has seen it."""
        request = self.requests.popleft()
        result = self._result(request.operation)
        self.out.append((request, result, self.view))

    def _result(self, operation: core.Operation) -> object:
        tree = self.leader.states[self.view]
        match operation:
            case core.Get(path, watch):
                entry = tree.get(path)
                if entry is None:
                    return core.NoNode()
                if watch:
                    self.watches.add(path)
                return core.Node(entry.data, entry)
            case core.Exists(path):
                return tree.get(path) or core.NoNode()
            case core.Children(path):
                if path not in tree:
                    return core.NoNode()
                return core.Listing(children_of(tree, path), tree[path])
            case core.Sync():
                self.catch_up(self.leader.zxid)
                return None
        result = self.leader.write(operation, self.session_id)
        self.catch_up(self.leader.zxid)
        return result
