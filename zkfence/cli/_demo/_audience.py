"""Audience: whoever is told of the demo while it runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from ._assignment import StoreKind
from ._timeline import Event
from ._verdict import Outcome, Verdict


@dataclass(frozen=True, slots=True)
class Heading:
    """What is said about an act before it begins, and after it has ended as told."""

    number: str
    title: str
    plot: str
    moral: str
    told: Outcome


@dataclass(frozen=True, slots=True)
class Setting:
    """What the demo runs on. ``zookeeper`` and ``store`` say it to people; the timeout is in seconds."""

    zookeeper: str
    store: str
    kind: StoreKind
    session_timeout: float


class Audience:
    """One that does not care. `_screen` has one that shows it all."""

    def preparing(self, what: str) -> AbstractContextManager[None]:
        """Something is under way before the first act."""
        return nullcontext()

    def opening(self, setting: Setting) -> None: ...

    def act(self, heading: Heading) -> None: ...

    def waiting(self, **lanes: str) -> AbstractContextManager[None]:
        """Nothing happens until the end of the block; ``lanes`` says what is going on, by lane."""
        return nullcontext()

    def event(self, event: Event) -> None: ...

    def verdict(self, heading: Heading, verdict: Verdict) -> None: ...

    def trouble(self, what: str) -> None:
        """Something that did not work, and that the user has to know."""
        sys.stderr.write(f"{what}\n")

    def finale(self, verdicts: Sequence[tuple[Heading, Verdict]]) -> None: ...
