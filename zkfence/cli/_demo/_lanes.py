"""Lanes: the rows of the timeline, with a column for each who takes part."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeAlias

from rich.console import Console
from rich.text import Text

_TIME_WIDTH: Final = 5
_WIDEST: Final = 27
_NARROWEST: Final = 10
_SHADE_WIDTH: Final = 8


class Lane(StrEnum):
    """In the order of the columns. The values are styles."""

    ZOOKEEPER = "yellow"
    A = "cyan"
    B = "magenta"
    STORE = "bright_blue"


Cells: TypeAlias = Mapping[Lane, Text]


class Lanes:
    """Lays out rows for a console of some width. What does not fit into a lane goes on below."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._border, shade = ("| ", ":") if console.options.ascii_only else ("│ ", "▒")
        room = (console.width - _TIME_WIDTH - 1) // len(Lane) - len(self._border)
        self._width = max(_NARROWEST, min(_WIDEST, room))
        self._shade = shade * _SHADE_WIDTH

    def row(self, time: str, cells: Cells, *, shaded: Lane | None = None) -> Text:
        """One row, of as many lines of text as its fullest lane needs, without blanks at their ends.

        ``shaded`` is a lane that stands still: where it has nothing to say, it is shaded.
        """
        columns = {lane: self._wrapped(cells.get(lane)) for lane in Lane}
        height = max(map(len, columns.values()))
        if shaded is not None and not columns[shaded]:
            columns[shaded] = [Text(self._shade, f"dim {shaded}")] * height
        return Text("\n").join(self._line(time if number == 0 else "", columns, number) for number in range(height))

    def _wrapped(self, cell: Text | None) -> list[Text]:
        return [] if cell is None else list(cell.wrap(self._console, self._width))

    def _line(self, time: str, columns: Mapping[Lane, list[Text]], number: int) -> Text:
        line = Text(f"{time:>{_TIME_WIDTH}} ", style="dim")
        for column in columns.values():
            cell = column[number].copy() if number < len(column) else Text()
            cell.truncate(self._width, pad=True)
            line = Text.assemble(line, (self._border, "dim"), cell)
        line.rstrip()
        return line
