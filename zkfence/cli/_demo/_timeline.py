"""Timeline: what happened, in order."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from zkfence_receivers import Token

from ._report import Lines


class What(StrEnum):
    GRANTED = "granted"
    QUEUED = "queued"
    CLAIMED = "claimed"
    READ = "read"
    STAMPED = "stamped"
    STOPPED = "stopped"
    EXPIRED = "expired"
    RESUMED = "resumed"
    WROTE = "wrote"
    REFUSED = "refused"
    RELEASED = "released"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened. What does not belong to it is ``None``.

    ``at``: seconds since the start, when the demo learned of it.
    ``worker``: who did it, or whom it happened to. ``token``: that worker's.
    ``claimed``: whether a read was made through the handle of a claim.
    ``late``: whether the worker's session was over when it sent its write.
    ``found``: what a read found. ``draft``: what the worker writes, or is going to.
    ``report``, ``mark``: what the store really holds afterwards, looked up there.
    ``lost``: lines that the store has acknowledged and does not hold afterwards.
    ``error``: what the store said when it refused.
    """

    at: float
    what: What
    worker: str
    token: Token | None = None
    claimed: bool | None = None
    late: bool | None = None
    found: Lines | None = None
    draft: Lines | None = None
    error: str | None = None
    report: Lines
    mark: Token | None
    lost: Lines

    def to_dict(self) -> dict[str, object]:
        """For JSON: tokens in their wire form and as people are shown them; ``None`` is left out."""
        fields: dict[str, object] = {"at": round(self.at, 3), "what": self.what.value, "worker": self.worker}
        for name in ("token", "mark"):
            token: Token | None = getattr(self, name)
            if token is not None:
                fields |= {name: str(token), f"{name}_dotted": token.dotted}
        for name in ("claimed", "late", "found", "draft", "report", "lost", "error"):
            value = getattr(self, name)
            if value is not None:
                fields[name] = value
        return fields


class Clock:
    """Seconds since the start of the demo."""

    def __init__(self) -> None:
        self._start: Final = time.monotonic()

    def __call__(self) -> float:
        return time.monotonic() - self._start
