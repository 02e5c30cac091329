"""Target: a ratio that zkfence has to reach, on one server and with all its features on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ._contender import CURATOR, KAZOO, STOCK, ZKFENCE, Contender
from ._row import Row


@dataclass(frozen=True, slots=True)
class Target:
    """The subject's rate by the rival's has to be ``least``; ``aim`` would be fine."""

    row: Row
    subject: Contender
    rival: Contender
    least: float
    aim: float | None = None

    def reached(self, ratio: float) -> bool:
        return ratio >= self.least


@dataclass(frozen=True, slots=True)
class Limit:
    """The subject may receive this many bytes per cycle."""

    row: Row
    subject: Contender
    most: float

    def kept(self, received: float) -> bool:
        return received <= self.most


def _of(subject: Contender, rival: Contender, **rows: tuple[float, float | None]) -> tuple[Target, ...]:
    return tuple(
        Target(Row.parse(name.replace("_", "-")), subject, rival, least, aim) for name, (least, aim) in rows.items()
    )


TARGETS: Final = (
    *_of(
        ZKFENCE,
        KAZOO,
        uncontended_1=(1.5, 1.75),
        uncontended_8=(3, 5),
        contended_10=(1.4, None),
        contended_100=(2, None),
        contended_1000=(4, None),
    ),
    *_of(
        ZKFENCE,
        CURATOR,
        uncontended_1=(1, None),
        uncontended_8=(1, None),
        contended_10=(1, None),
        contended_100=(2, None),
        contended_1000=(2, None),
    ),
    *_of(STOCK, KAZOO, uncontended_1=(1.25, None), uncontended_8=(1.25, None), contended_100=(1.4, None)),
)
LIMITS: Final = (Limit(Row.parse("contended-1000"), ZKFENCE, 1000),)
