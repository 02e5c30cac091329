"""zkfence's lock beside kazoo's and Curator's, in one run on servers of its own: ``python -m benchmarks.locks``.

What is measured, and how to read it: docs/benchmarks.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ._locks import _curator, _machine
from ._locks._cell import Window
from ._locks._contender import CURATORS, Contender
from ._locks._options import BUILD, Options
from ._locks._report import print_facts, print_results, save_plot, save_results
from ._locks._results import Results
from ._locks._run import SESSION_TIMEOUT, Plan, run, steps
from ._locks._servers import Servers

_MOST: Final = 5  # a cell is cut at this many times --seconds, …
_MOST_SECONDS: Final = 10.0  # … or at this, if it is more, whether everybody has had the lock or not
_INTERRUPTED: Final = 130
_FILE_WIDTH: Final = 120  # columns, where no terminal tells


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 1 where a cell failed, 130 after Ctrl-C, when what was measured is still reported."""
    options = Options.parse(arguments)
    screen, notes = Console(width=None if sys.stdout.isatty() else _FILE_WIDTH), Console(stderr=True)
    plan = _plan(options, notes)
    facts = _machine.describe()
    measured: list[Results] = []
    try:
        for count in options.servers:
            _measure(plan, count, options.fsync, facts, measured, notes)
        status = int(any(series.failures for results in measured for series in results.series.values()))
    except KeyboardInterrupt:
        status = _INTERRUPTED
    facts["measured"] = _how(options, interrupted=status == _INTERRUPTED)
    print_facts(facts, screen)
    for results in measured:
        print_results(results, screen)
    save_results(options.json, measured, facts)
    screen.print(f"results: {options.json}", save_plot(options.plot, measured, facts), sep="\n", highlight=False)
    return status


def _plan(options: Options, notes: Console) -> Plan:
    contenders = [contender for contender in options.contenders if _is_there(contender, notes)]
    classes, logs = BUILD / "classes", BUILD / "logs"
    if any(contender in CURATORS for contender in contenders):
        _curator.compile_worker(classes)
    logs.mkdir(parents=True, exist_ok=True)
    window = Window(options.seconds, max(_MOST * options.seconds, _MOST_SECONDS))
    return Plan(contenders, options.rows, options.rounds, window, options.warm_up, classes, logs)


def _is_there(contender: Contender, notes: Console) -> bool:
    missing = contender.missing()
    if missing:
        notes.print(f"left out: {contender.title}: {missing}", highlight=False)
    return not missing


def _measure(
    plan: Plan, count: int, fsync: bool, facts: dict[str, str], measured: list[Results], notes: Console
) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal)
    with Servers(count, fsync=fsync) as servers, progress:
        facts["ZooKeeper"] = servers.version
        results = Results.empty(count, servers.title, plan.contenders, plan.rows)
        measured.append(results)
        task = progress.add_task(servers.title, total=steps(plan))
        run(plan, servers, results, lambda what: progress.update(task, description=what, advance=1))


def _how(options: Options, *, interrupted: bool) -> str:
    warm = f"warm-up {options.warm_up:g} s twice" if options.warm_up else "no warm-up"
    disk = "servers wait for their disk (fsync)" if options.fsync else "servers do not wait for their disk (no fsync)"
    end = ", INTERRUPTED" if interrupted else ""
    return (
        f"{options.rounds} rounds of {options.seconds:g} s, {warm}, {disk}, sessions of {SESSION_TIMEOUT:g} s, "
        f"one client process for each contender{end}"
    )


if __name__ == "__main__":
    sys.exit(main())
