"""Results: the cells of a run, and what follows from them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ._cell import Cell
from ._contender import Contender
from ._row import Row

Quantity: TypeAlias = Callable[[Cell], float | None]


def rate(cell: Cell) -> float | None:
    return cell.rate


def cpu_per_cycle(cell: Cell) -> float | None:
    return cell.cpu_per_cycle


def bytes_per_cycle(cell: Cell) -> float | None:
    return cell.bytes_per_cycle


@dataclass(frozen=True, slots=True)
class Spread:
    """Of one figure over the rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


@dataclass(slots=True)
class Series:
    """One contender in one row: a cell for each round, ``None`` where the round failed."""

    cells: list[Cell | None] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def spread(self, quantity: Quantity) -> Spread | None:
        values = [value for cell in self.cells if cell is not None and (value := quantity(cell)) is not None]
        return Spread.of(values) if values else None


@dataclass(frozen=True, slots=True)
class Results:
    """What was measured on ``servers`` servers."""

    servers: int
    title: str
    contenders: Sequence[Contender]
    rows: Sequence[Row]
    series: Mapping[tuple[Row, Contender], Series]

    @classmethod
    def empty(cls, servers: int, title: str, contenders: Sequence[Contender], rows: Sequence[Row]) -> Results:
        series = {(row, contender): Series() for row in rows for contender in contenders if contender.runs(row)}
        return cls(servers, title, contenders, rows, series)

    def of(self, row: Row) -> Iterator[tuple[Contender, Series]]:
        """The contenders that run in a row."""
        for contender in self.contenders:
            if (row, contender) in self.series:
                yield contender, self.series[row, contender]

    def ratio(self, row: Row, subject: Contender, rival: Contender) -> Spread | None:
        """Of the rates. Those of the same round are compared: what disturbed the machine has met both. ``None`` where
        they have no round in common."""
        ours, theirs = self.series.get((row, subject)), self.series.get((row, rival))
        if ours is None or theirs is None:
            return None
        pairs = zip(ours.cells, theirs.cells, strict=False)  # an interrupted round has not all of them
        ratios = [our.rate / their.rate for our, their in pairs if our and their and their.cycles]
        return Spread.of(ratios) if ratios else None

    def to_json(self) -> dict[str, Any]:
        return {
            "servers": self.servers,
            "rows": {
                row.name: {contender.name: _series_to_json(series) for contender, series in self.of(row)}
                for row in self.rows
            },
        }


def _series_to_json(series: Series) -> dict[str, Any]:
    spreads = {quantity.__name__: series.spread(quantity) for quantity in (rate, bytes_per_cycle, cpu_per_cycle)}
    return {
        **{name: spread and spread.median for name, spread in spreads.items()},
        "rounds": [
            cell and {"cycles": cell.cycles, "seconds": cell.seconds, "cpu": cell.cpu, "received": cell.received}
            for cell in series.cells
        ],
        "failures": series.failures,
    }
