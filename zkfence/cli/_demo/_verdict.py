"""Verdict: how an act ended, read from the store."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ._report import Lines, label_of


class LateWrite(StrEnum):
    """What became of the write that the paused worker sent after its session."""

    ACCEPTED = "accepted"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an act is told to end: lines by their labels."""

    late_write: LateWrite
    acknowledged: Lines
    lost: Lines


@dataclass(frozen=True, slots=True)
class Verdict:
    """``acknowledged`` and ``refused``: lines, as the store answered to their writers. ``report``: what it really
    holds at the end.
    """

    told: Outcome
    late_write: LateWrite | None
    acknowledged: Lines
    refused: Lines
    report: Lines

    @property
    def lost(self) -> Lines:
        """Acknowledged, but not there."""
        return missing(self.acknowledged, self.report)

    @property
    def smuggled(self) -> Lines:
        """Refused, but there."""
        return tuple(line for line in self.refused if line in self.report)

    @property
    def as_told(self) -> bool:
        seen = (self.late_write, _labels(self.acknowledged), _labels(self.lost))
        return seen == (self.told.late_write, self.told.acknowledged, self.told.lost) and not self.smuggled

    def to_dict(self) -> dict[str, object]:
        return {
            "as_told": self.as_told,
            "late_write": self.late_write,
            "acknowledged": self.acknowledged,
            "refused": self.refused,
            "report": self.report,
            "lost": self.lost,
        }


def missing(acknowledged: Lines, report: Lines) -> Lines:
    return tuple(line for line in acknowledged if line not in report)


def _labels(lines: Lines) -> Lines:
    return tuple(sorted(label_of(line) for line in lines))
