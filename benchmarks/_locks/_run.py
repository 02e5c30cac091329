"""The run: every contender in every row, in rounds, each of which begins with another one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ._cell import Window, measure
from ._contender import Contender
from ._results import Results, Series
from ._row import Row
from ._servers import Servers
from ._worker_process import WorkerFailed, WorkerProcess

SESSION_TIMEOUT: Final = 30.0  # seconds, of everybody: a thousand busy threads must not lose their session
_WARM_UP: Final = (Row(contended=False, size=8), Row(contended=True, size=10))


@dataclass(frozen=True, slots=True)
class Plan:
    """``warm_up``: seconds for each contender in each of two rows, before anything is measured."""

    contenders: Sequence[Contender]
    rows: Sequence[Row]
    rounds: int
    window: Window
    warm_up: float
    build: Path
    logs: Path


def run(plan: Plan, servers: Servers, results: Results, progress: Callable[[str], object]) -> None:
    """Fill in the results, so that what was measured is there when the run is interrupted. ``progress`` is told what
    comes next, once for each of `steps`."""
    with contextlib.ExitStack() as stack:
        workers = {contender: stack.enter_context(_worker(plan, servers, contender)) for contender in plan.contenders}
        if plan.warm_up:
            for contender, worker in workers.items():
                progress(f"{servers.title}: {contender.title} gets warm")
                _warm_up(plan, servers, contender, worker)
        for row in plan.rows:
            runners = [contender for contender in plan.contenders if contender.runs(row)]
            for round_ in range(plan.rounds):
                first = round_ % len(runners) if runners else 0
                for contender in (*runners[first:], *runners[:first]):
                    progress(f"{servers.title}: {row.title}, round {round_ + 1}, {contender.title}")
                    name = f"{row.name}-{round_}"
                    _fill(results.series[row, contender], workers[contender], servers, row, name, plan.window)


def steps(plan: Plan) -> int:
    """How many steps `run` has."""
    cells = sum(contender.runs(row) for row in plan.rows for contender in plan.contenders)
    return cells * plan.rounds + bool(plan.warm_up) * len(plan.contenders)


def _worker(plan: Plan, servers: Servers, contender: Contender) -> WorkerProcess:
    command = contender.command(plan.build, servers.hosts, SESSION_TIMEOUT)
    return WorkerProcess(command, plan.logs / f"{contender.name}.log", stays=contender.stays)


def _warm_up(plan: Plan, servers: Servers, contender: Contender, worker: WorkerProcess) -> None:
    window = Window(plan.warm_up, plan.warm_up)
    for row in _WARM_UP:
        if contender.runs(row):
            with contextlib.suppress(WorkerFailed):  # the rows will tell
                measure(worker, servers, row, f"warm-up-{row.name}", window)


def _fill(series: Series, worker: WorkerProcess, servers: Servers, row: Row, name: str, window: Window) -> None:
    try:
        series.cells.append(measure(worker, servers, row, name, window))
    except WorkerFailed as failure:
        series.cells.append(None)
        series.failures.append(str(failure))
