"""The tables of the results."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from ._contender import AIO, CURATOR, CURATOR_SHARED, KAZOO, STOCK, ZKFENCE, Contender
from ._results import Results, Series, Spread, bytes_per_cycle, cpu_per_cycle, rate
from ._row import Row
from ._target import LIMITS, TARGETS, Limit, Target

_COMPARED = (
    (ZKFENCE, KAZOO),
    (ZKFENCE, CURATOR),
    (ZKFENCE, CURATOR_SHARED),
    (STOCK, KAZOO),
    (AIO, KAZOO),
)
_NOTHING = "–"


def rates(results: Results) -> Table:
    """What was measured: a line for each contender in each row."""
    table = _table(f"Acquire and release, on {results.title}")
    table.add_column("row", no_wrap=True)
    table.add_column("contender", no_wrap=True)
    for heading in (
        "cycles/s",
        "min – max",
        "bytes received\nper cycle",
        "client CPU\nµs per cycle",
        "of kazoo's\nrate",
    ):
        table.add_column(heading, justify="right")
    for row in results.rows:
        for number, (contender, series) in enumerate(results.of(row)):
            title = row.title if number == 0 else ""
            table.add_row(title, contender.title, *_figures(series), _of_kazoo(results, row, contender))
        table.add_section()
    return table


def ratios(results: Results) -> Table:
    """What is asked of zkfence, and whether it was reached. The targets are for one server."""
    table = _table(f"Ratios of the rates, on {results.title}")
    table.add_column("ratio", no_wrap=True)
    table.add_column("row", no_wrap=True)
    for heading in ("ratio", "min – max", "target", "aim"):
        table.add_column(heading, justify="right")
    table.add_column("reached")
    for subject, rival in _COMPARED:
        if subject in results.contenders and rival in results.contenders:
            for row in results.rows:
                if subject.runs(row) and rival.runs(row):
                    table.add_row(f"{subject.name} / {rival.name}", row.title, *_judged(results, row, subject, rival))
            table.add_section()
    for limit in LIMITS:
        if limit.subject in results.contenders and limit.row in results.rows:
            label = f"{limit.subject.name}, bytes per cycle"
            table.add_row(label, limit.row.title, *_limited(results, limit))
    return table


def failures(results: Results) -> Iterator[str]:
    """What went wrong, for people."""
    for (row, contender), series in results.series.items():
        for failure in series.failures:
            yield f"{results.title}, {row.title}, {contender.title}: {failure}"


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold")


def _figures(series: Series) -> tuple[str, ...]:
    speed, received, cpu = (series.spread(quantity) for quantity in (rate, bytes_per_cycle, cpu_per_cycle))
    failed = f" ({len(series.failures)} failed)" if series.failures else ""
    return (
        f"{speed.median:,.0f}{failed}" if speed else f"{_NOTHING}{failed}",
        f"{speed.least:,.0f} – {speed.most:,.0f}" if speed else _NOTHING,
        f"{received.median:,.0f}" if received else _NOTHING,
        f"{cpu.median * 1e6:,.0f}" if cpu else _NOTHING,
    )


def _of_kazoo(results: Results, row: Row, contender: Contender) -> str:
    ratio = results.ratio(row, contender, KAZOO)
    return f"{ratio.median:.2f}" if ratio else _NOTHING


def _judged(results: Results, row: Row, subject: Contender, rival: Contender) -> tuple[str, ...]:
    ratio = results.ratio(row, subject, rival)
    target = next((t for t in TARGETS if (t.row, t.subject, t.rival) == (row, subject, rival)), None)
    return (
        f"{ratio.median:.2f}" if ratio else _NOTHING,
        f"{ratio.least:.2f} – {ratio.most:.2f}" if ratio else _NOTHING,
        f"≥ {target.least:g}" if target else "",
        f"{target.aim:g}" if target and target.aim else "",
        _verdict(results, target, ratio),
    )


def _verdict(results: Results, target: Target | None, ratio: Spread | None) -> str:
    if target is None or ratio is None:
        return ""
    if results.servers > 1:
        return "(is for 1 server)"
    if not target.reached(ratio.median):
        return "[red]no"
    return "[green]yes, the aim too" if target.aim and ratio.median >= target.aim else "[green]yes"


def _limited(results: Results, limit: Limit) -> tuple[str, ...]:
    received = results.series[limit.row, limit.subject].spread(bytes_per_cycle)
    if received is None:
        return (_NOTHING, _NOTHING, f"≤ {limit.most:,g}", "", "")
    return (
        f"{received.median:,.0f}",
        f"{received.least:,.0f} – {received.most:,.0f}",
        f"≤ {limit.most:,g}",
        "",
        "[green]yes" if limit.kept(received.median) else "[red]no",
    )
