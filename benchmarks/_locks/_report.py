"""The report: tables on the screen, a file of results, and a plot."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from ._results import Results
from ._table import failures, rates, ratios


def print_facts(facts: Mapping[str, str], screen: Console) -> None:
    """On what, and how, it was measured."""
    for name, value in facts.items():
        screen.print(f"[bold]{name}[/bold]: {escape(value)}", highlight=False)


def print_results(results: Results, screen: Console) -> None:
    """All of one number of servers."""
    for table in (rates(results), ratios(results)):
        if table.row_count:
            screen.print(table)
    for failure in failures(results):
        screen.print(f"[red]failed:[/red] {escape(failure)}", highlight=False)


def save_results(path: Path, all_results: Sequence[Results], facts: Mapping[str, str]) -> None:
    """As JSON: every cell, and the medians. Times in seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"facts": facts, "results": [results.to_json() for results in all_results]}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def save_plot(path: Path, all_results: Sequence[Results], facts: Mapping[str, str]) -> str:
    """Returns where it is, or why there is none."""
    if not all_results:
        return "no plot: nothing was measured"
    if find_spec("matplotlib") is None:
        return "no plot: matplotlib is not installed (`make bench-locks` does it)"
    from ._plot import save

    save(path, all_results, "   ".join(f"{name}: {value}" for name, value in facts.items()))
    return f"plot: {path}"
