"""Options: what the command line asks for."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from ._contender import CONTENDERS, Contender
from ._row import ROWS, Row

BUILD: Final = Path("build/bench-locks")
_QUICK_SIZE: Final = 10

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Options:
    """``seconds`` for one contender in one round; ``warm_up`` seconds for each contender in each of two rows."""

    rounds: int
    seconds: float
    warm_up: float
    servers: Sequence[int]
    fsync: bool
    contenders: Sequence[Contender]
    rows: Sequence[Row]
    json: Path
    plot: Path

    @classmethod
    def parse(cls, arguments: Sequence[str] | None) -> Options:
        """Ends the process with advice where the arguments are wrong."""
        given = _parser().parse_args(arguments)
        quick = given.quick
        rows = [row for row in ROWS if row.size <= _QUICK_SIZE] if quick else ROWS
        return cls(
            rounds=given.rounds or (1 if quick else 5),
            seconds=given.seconds or (0.3 if quick else 2.0),
            warm_up=given.warm_up if given.warm_up is not None else (0.0 if quick else 5.0),
            servers=given.servers or ([1] if quick else [1, 3]),
            fsync=given.fsync,
            contenders=given.only or CONTENDERS,
            rows=given.rows or rows,
            json=given.json,
            plot=given.plot,
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.locks",
        description="zkfence's lock beside kazoo's and Curator's, in one run on servers of its own.",
    )
    add = parser.add_argument
    add("--rounds", type=_count, metavar="N", help="the medians of these are taken (5)")
    add("--seconds", type=_seconds, metavar="S", help="for one contender in one round (2)")
    add("--warm-up", type=float, metavar="S", help="for each contender, in each of two rows (5)")
    add("--servers", type=_list(_count), metavar="N,N", help="how many servers, one after another (1,3)")
    add("--only", type=_list(_contender), metavar="NAMES", help=",".join(contender.name for contender in CONTENDERS))
    add("--rows", type=_list(_row), metavar="NAMES", help=",".join(row.name for row in ROWS) + ", or others like them")
    add("--fsync", action="store_true", help="the servers wait for their disk; off, since the client is the subject")
    add("--quick", action="store_true", help="a look: 1 round of 0.3 s on 1 server, no warm-up, at most 10 contenders")
    add("--json", type=Path, metavar="FILE", default=BUILD / "results.json", help="where the results go (%(default)s)")
    add("--plot", type=Path, metavar="FILE", default=BUILD / "plot.png", help="where the plot goes (%(default)s)")
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("it has to be 1 or more")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError("it has to be more than 0")
    return value


def _list(item: Callable[[str], T]) -> Callable[[str], list[T]]:
    return lambda text: [item(part) for part in text.split(",")]


def _contender(name: str) -> Contender:
    for contender in CONTENDERS:
        if contender.name == name:
            return contender
    raise argparse.ArgumentTypeError(f"there is no contender {name!r}")


def _row(name: str) -> Row:
    try:
        return Row.parse(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
