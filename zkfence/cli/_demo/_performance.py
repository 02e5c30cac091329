"""Performance: all acts, one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ._acts import ACTS, Act
from ._audience import Audience
from ._interruption import Interruption
from ._scene import Scene
from ._stage import Stage, Wishes, build_stage
from ._timeline import Clock, Event
from ._verdict import Verdict


@dataclass(frozen=True, slots=True)
class Played:
    """One act that was played to its end."""

    act: Act
    verdict: Verdict
    events: Sequence[Event]

    def to_dict(self) -> dict[str, object]:
        heading = self.act.heading
        return {
            "act": heading.number,
            "title": heading.title,
            "resource": self.act.resource,
            **self.verdict.to_dict(),
            "events": [event.to_dict() for event in self.events],
        }


class Performance:
    """``played`` has the acts that were played so far, also where an error ended the rest."""

    def __init__(self) -> None:
        self.played: Final[list[Played]] = []

    @property
    def as_told(self) -> bool:
        """Whether every act was played, and went as told."""
        return len(self.played) == len(ACTS) and all(played.verdict.as_told for played in self.played)

    def run(self, wishes: Wishes, interruption: Interruption, audience: Audience, clock: Clock) -> None:
        """Play all acts. Raises what `build_stage` raises, `DemoFailed` and `Interrupted`; nothing stays behind."""
        with build_stage(wishes, [act.resource for act in ACTS], interruption, audience, clock) as stage:
            for act in ACTS:
                audience.act(act.heading)
                played = _play(act, stage, audience)
                self.played.append(played)
                audience.verdict(act.heading, played.verdict)


def _play(act: Act, stage: Stage, audience: Audience) -> Played:
    with stage.hire("A", act.resource) as a, stage.hire("B", act.resource) as b:
        scene = Scene(stage, act.resource, (a, b), audience)
        scene.begin()
        act.play(scene)
        scene.end()
    return Played(act, scene.verdict(act.heading.told), scene.events)
