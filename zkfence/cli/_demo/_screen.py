"""Screen: the demo as people see it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from rich.box import ASCII2, SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.rule import Rule
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from ._assignment import StoreKind
from ._audience import Audience, Heading, Setting
from ._cells import BAD, GOOD, cells_of
from ._lanes import Lane, Lanes
from ._report import Lines
from ._timeline import Clock, Event, What
from ._verdict import LateWrite, Verdict

_FRAMES_PER_SECOND: Final = 10
_PACE: Final = 0.15  # seconds between two rows, for people who watch; nothing depends on it

_MORAL: Final = (
    "A lock tells workers who should act, and cannot stop one that wakes up too late. The store can: send the "
    "grant's token with every write, and claim before you read."
)
_CODE: Final = """\
with FencedLock(zk, "reports") as grant:
    report = store.claim("report-7", grant)  # now no older token can write
    report.write(extended(report.read()))"""
_NOT_AS_TOLD: Final = "Not as told: the store, its receiver or this demo is not what it should be."
_NEXT: Final = "Next: the quickstart in the README, with a worker and a store of your own."


class Screen(Audience):
    """A timeline with a lane for ZooKeeper, each worker and the store. Each row is printed once, and stays.

    On a terminal, a moving row at the end says what is being waited for; elsewhere there are plain lines only.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._console = Console(highlight=False)
        # Not where colour is merely forced: a log of a build has no use for rows that move.
        self._moves = self._console.file.isatty() and not self._console.is_dumb_terminal
        self._ascii = self._console.options.ascii_only
        self._lanes = Lanes(self._console)
        self._store = ""
        self._lost: Lines = ()
        self._stopped: Lane | None = None

    # --- before the first act -----------------------------------------------------------------------------------

    @contextmanager
    def preparing(self, what: str) -> Iterator[None]:
        with self._moving(Spinner("line" if self._ascii else "dots", what)):
            yield

    def opening(self, setting: Setting) -> None:
        self._store = "files" if setting.kind is StoreKind.FILE else "Redis"
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim")
        for word, meaning in (
            ("ZooKeeper", setting.zookeeper),
            ("The store", setting.store),
            ("Sessions", f"end when a worker has been silent for {setting.session_timeout:g} s"),
            ("1.2", "a fencing token: larger than that of every earlier holder of the lock"),
            ("mark", "the largest token that the store has seen"),
            ("[A1 B1]", "a report with one line of worker A and one of worker B"),
        ):
            table.add_row(Text(word), Text(meaning))
        self._show(Text("Two workers, one report, one lock.", "bold"), "", table)

    # --- an act -------------------------------------------------------------------------------------------------

    def act(self, heading: Heading) -> None:
        self._lost = ()
        names = {Lane.ZOOKEEPER: "ZooKeeper", Lane.A: "worker A", Lane.B: "worker B", Lane.STORE: self._store}
        self._show("", self._rule(f"Act {heading.number}: {heading.title}"), heading.plot, "")
        self._show(self._lanes.row("s", {lane: Text(name, f"bold {lane}") for lane, name in names.items()}))

    @contextmanager
    def waiting(self, **lanes: str) -> Iterator[None]:
        texts = {Lane[name.upper()]: text for name, text in lanes.items()}
        with self._moving(_MovingRow(self._lanes, self._clock, texts, self._stopped)):
            yield

    def event(self, event: Event) -> None:
        if event.what is What.RESUMED:
            self._stopped = None
        self._show(self._lanes.row(f"{event.at:.1f}", cells_of(event, self._lost), shaded=self._stopped))
        if event.what is What.STOPPED:
            self._stopped = Lane[event.worker]
        if event.error is not None:
            self._show(Padding(Text(event.error, "green"), (0, 0, 0, 6)))
        self._lost = event.lost
        if self._moves:
            time.sleep(_PACE)

    def verdict(self, heading: Heading, verdict: Verdict) -> None:
        table = Table.grid(padding=(0, 2))
        table.add_row("The report holds", _listed(verdict.report))
        for what, lines in (("Acknowledged, and lost", verdict.lost), ("Refused, and there", verdict.smuggled)):
            if lines:
                table.add_row(Text(what, BAD), _listed(lines, BAD))
        self._show("", table)
        if verdict.as_told:
            self._show(Text.assemble(("As told. ", GOOD), (heading.moral, "bold")))
        else:
            told = verdict.told
            self._show(
                Text(
                    f"NOT AS TOLD. A's late write should have been {told.late_write}, {', '.join(told.acknowledged)} "
                    f"acknowledged, and {', '.join(told.lost) or 'nothing'} lost.",
                    BAD,
                )
            )

    # --- after the last act -------------------------------------------------------------------------------------

    def finale(self, verdicts: Sequence[tuple[Heading, Verdict]]) -> None:
        table = Table(box=ASCII2 if self._ascii else SIMPLE_HEAD, pad_edge=False)
        for column in ("Act", "A's late write", "Acknowledged, and lost", "As told"):
            table.add_column(column)
        for heading, verdict in verdicts:
            table.add_row(
                f"{heading.number}: {heading.title}",
                Text(verdict.late_write or "never came", GOOD if verdict.late_write is LateWrite.REFUSED else BAD),
                _listed(verdict.lost, BAD) if verdict.lost else Text("nothing", GOOD),
                Text("yes", GOOD) if verdict.as_told else Text("NO", BAD),
            )
        self._show("", self._rule("What the store really holds"), table)
        if all(verdict.as_told for _, verdict in verdicts):
            self._show(_MORAL, "", Padding(Text(_CODE, "bold"), (0, 0, 0, 4)), "", _NEXT)
        else:
            self._show(Text(_NOT_AS_TOLD, BAD))

    # --- details ------------------------------------------------------------------------------------------------

    def _rule(self, title: str) -> Rule:
        return Rule(Text(title, "bold"), align="left", style="dim")

    def _show(self, *what: RenderableType) -> None:
        self._console.print(*what, sep="\n")

    @contextmanager
    def _moving(self, row: RenderableType) -> Iterator[None]:
        if not self._moves:
            yield
            return
        with Live(row, console=self._console, refresh_per_second=_FRAMES_PER_SECOND, transient=True):
            yield


class _MovingRow:
    """A row of the timeline whose time runs."""

    def __init__(self, lanes: Lanes, clock: Clock, texts: Mapping[Lane, str], stopped: Lane | None) -> None:
        self._lanes = lanes
        self._stopped = stopped
        self._clock = clock
        self._cells = {lane: Text(text, f"dim {lane}") for lane, text in texts.items()}

    def __rich__(self) -> Text:
        return self._lanes.row(f"{self._clock():.1f}", self._cells, shaded=self._stopped)


def _listed(lines: Lines, style: str = "") -> Text:
    return Text("\n".join(lines), style)
