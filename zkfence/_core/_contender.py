"""Contender: one who holds a lock or waits for it, as its node tells; and who they all are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zkfence_receivers.words import Token

from ._kinds import Ahead, kind_of
from ._layout import CEILING, Layout, contenders_in, counter_path, slot_name
from ._operations import Children, Get, Node, NoNode, Steps, land, read

_BATCH = 100  # reads in one flight


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
    found = yield from _nodes(layout.lock(lock_name))
    slots: dict[str, Token] = {}
    for permits in {kind_of(ahead.prefix).permits for _, ahead, _ in found} - {0}:
        for slot in range(permits):
            for token, _, node in (yield from _nodes(layout.lock(slot_name(lock_name, slot)))):
                slots[_text(_fields(node.data), "guid")] = token
    listed: list[Contender] = []
    for position, (token, ahead, node) in enumerate(found):
        kind = kind_of(ahead.prefix)
        fields = _fields(node.data)
        holder = _text(fields, "guid")
        pid, since = fields.get("pid"), fields.get("since")
        listed.append(
            Contender(
                holds=not kind.blockers([each for _, each, _ in found[:position]]),
                token=slots.get(holder) if kind.permits else token,
                holder=holder,
                mode=kind.mode.value,
                host=_text(fields, "host"),
                pid=pid if isinstance(pid, int) else 0,
                info=_text(fields, "info"),
                since=since if isinstance(since, float | int) else 0.0,
                session_id=node.stat.ephemeralOwner,
                path=ahead.path,
            )
        )
    return listed


def _nodes(lock_path: str) -> Steps[Sequence[tuple[Token, Ahead, Node]]]:
    """The contenders' nodes of all epochs, in order. (One with a closing number is about to queue anew.)"""
    (listing,) = yield from read(Children(lock_path))
    epochs = (
        [] if isinstance(listing, NoNode) else sorted(int(name) for name in land(listing).names if name.isdecimal())
    )
    ahead: list[tuple[Token, Ahead]] = []
    for epoch in epochs:
        counter = counter_path(lock_path, epoch)
        (listing,) = yield from read(Children(counter))
        if not isinstance(listing, NoNode):
            ahead += [
                (Token.of(epoch, each.number), Ahead(each.prefix, f"{counter}/{each.name}"))
                for each in sorted(contenders_in(land(listing).names))
                if 0 <= each.number < CEILING
            ]
    nodes: list[tuple[Token, Ahead, Node]] = []
    for start in range(0, len(ahead), _BATCH):
        batch = ahead[start : start + _BATCH]
        answers = yield from read(*(Get(each.path) for _, each in batch))
        nodes += [
            (*each, land(node)) for each, node in zip(batch, answers, strict=True) if not isinstance(node, NoNode)
        ]
    return nodes


def _fields(data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""
