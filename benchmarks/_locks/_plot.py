"""The plot of the results. Needs matplotlib, which is imported here only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ._contender import CONTENDERS
from ._results import Quantity, Results, bytes_per_cycle, cpu_per_cycle, rate

_COLOURS: Final = dict(zip(CONTENDERS, mpl.color_sequences["tab10"], strict=False))
_PANELS: Final[tuple[tuple[str, Quantity, float], ...]] = (
    ("cycles per second", rate, 1.0),
    ("bytes received per cycle", bytes_per_cycle, 1.0),
    ("client CPU per cycle, µs", cpu_per_cycle, 1e6),
)
_WIDTH: Final = 0.84  # of a group of bars


def save(path: Path, all_results: Sequence[Results], caption: str) -> None:
    """Medians as bars, from least to most as lines; a line of panels for each number of servers. PNG, or what the
    name of the file says."""
    figure = Figure(figsize=(7 * len(_PANELS), 4.6 * len(all_results) + 0.6), layout="constrained")
    grid = figure.subplots(len(all_results), len(_PANELS), squeeze=False)
    for results, line in zip(all_results, grid, strict=True):
        for axes, (title, quantity, unit) in zip(line, _PANELS, strict=True):
            _draw(axes, results, quantity, unit)
            axes.set_title(f"{title}, on {results.title}", fontsize=10)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(CONTENDERS), frameon=False)
    figure.supxlabel(caption, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _draw(axes: Axes, results: Results, quantity: Quantity, unit: float) -> None:
    width = _WIDTH / len(results.contenders)
    for number, contender in enumerate(results.contenders):
        bars = [
            (index + (number + 0.5) * width - _WIDTH / 2, spread)
            for index, row in enumerate(results.rows)
            if (row, contender) in results.series
            and (spread := results.series[row, contender].spread(quantity)) is not None
        ]
        axes.bar(
            [at for at, _ in bars],
            [spread.median * unit for _, spread in bars],
            width,
            yerr=[
                [(spread.median - spread.least) * unit for _, spread in bars],
                [(spread.most - spread.median) * unit for _, spread in bars],
            ],
            label=contender.title,
            color=_COLOURS[contender],
            error_kw={"elinewidth": 0.8},
        )
    axes.set_yscale("log")
    axes.set_xticks(range(len(results.rows)), [row.name.replace("-", "\n") for row in results.rows], fontsize=8)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
