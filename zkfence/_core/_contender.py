"""Contender: one who holds a lock or waits for it, as its node tells; and who they all are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from zkfence_receivers.words import Token

from ._kinds import Ahead, kind_of
from ._layout import CEILING, Layout, contenders_in, counter_path, epochs_in, slot_name
from ._operations import Children, Get, Node, NoNode, Steps, land, read_many


@dataclass(frozen=True, slots=True)
class Contender:
    """One who holds a lock, or waits for it. A snapshot: it may be over by the time that it is read."""

    holds: bool
    token: Token | None
    """What it was granted, or will be. ``None`` for one that waits for a semaphore, whose slot is not known yet."""
    holder: str
    """The GUID of the acquisition: ``grant.holder``."""
    mode: str
    """``write``, or ``read`` for a reader."""
    host: str
    pid: int
    info: str
    since: float
    """When it began to contend, in seconds since 1970, by its own clock."""
    session_id: int
    path: str
    """Its node. Who deletes it takes the lock, or the place in the line, away from it."""


def list_contenders(layout: Layout, lock_name: str) -> Steps[Sequence[Contender]]:
    """Everybody who holds the lock or waits for it, in the order in which they are served."""
    found = yield from _nodes([layout.lock(lock_name)])
    permits = max((kind_of(each.ahead.prefix).permits for each in found), default=0)
    in_slots = yield from _nodes([layout.lock(slot_name(lock_name, slot)) for slot in range(permits)])
    slots = {_text(_fields(each.node.data), "guid"): each.token for each in in_slots}
    listed: list[Contender] = []
    ahead: list[Ahead] = []
    for each in found:
        kind = kind_of(each.ahead.prefix)
        fields = _fields(each.node.data)
        holder = _text(fields, "guid")
        pid, since = fields.get("pid"), fields.get("since")
        listed.append(
            Contender(
                holds=not kind.blockers(ahead),
                token=slots.get(holder) if kind.permits else each.token,
                holder=holder,
                mode=kind.mode.value,
                host=_text(fields, "host"),
                pid=pid if isinstance(pid, int) else 0,
                info=_text(fields, "info"),
                since=since if isinstance(since, float | int) else 0.0,
                session_id=each.node.stat.ephemeralOwner,
                path=each.ahead.path,
            )
        )
        ahead.append(each.ahead)
    return listed


class _Found(NamedTuple):
    token: Token
    ahead: Ahead
    node: Node


def _nodes(lock_paths: Sequence[str]) -> Steps[Sequence[_Found]]:
    """The contenders' nodes of all epochs of these locks, in order. (One with a closing number is about to queue
    anew.)"""
    counters: list[tuple[int, str]] = []
    listings = yield from read_many([Children(path) for path in lock_paths])
    for lock_path, listing in zip(lock_paths, listings, strict=True):
        if not isinstance(listing, NoNode):
            counters += [(epoch, counter_path(lock_path, epoch)) for epoch in epochs_in(land(listing).names)]
    contenders: list[tuple[Token, Ahead]] = []
    listings = yield from read_many([Children(counter) for _, counter in counters])
    for (epoch, counter), listing in zip(counters, listings, strict=True):
        if not isinstance(listing, NoNode):
            contenders += [
                (Token.of(epoch, each.number), Ahead(each.prefix, f"{counter}/{each.name}"))
                for each in sorted(contenders_in(land(listing).names))
                if 0 <= each.number < CEILING
            ]
    nodes = yield from read_many([Get(ahead.path) for _, ahead in contenders])
    return [
        _Found(token, ahead, land(node))
        for (token, ahead), node in zip(contenders, nodes, strict=True)
        if not isinstance(node, NoNode)
    ]


def _fields(data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""
