"""Cells: an event in words, by lane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.text import Text

from zkfence_receivers import Token

from ._lanes import Lane
from ._report import Lines, label_of
from ._timeline import Event, What

GOOD: Final = "bold green"
BAD: Final = "bold red"


def cells_of(event: Event, lost_before: Lines) -> Mapping[Lane, Text]:
    """What each lane says about an event. ``lost_before`` is what was lost already, and is not news."""
    name, token = event.worker, _dotted(event.token)
    worker, zookeeper, store = Text(style=Lane[name]), Text(style=Lane.ZOOKEEPER), Text(style=Lane.STORE)
    match event.what:
        case What.GRANTED:
            zookeeper.append(f"{name} holds {token}")
            worker.append("has the lock")
        case What.QUEUED:
            zookeeper.append(f"{name} waits")
            worker.append("gets in line")
        case What.CLAIMED:
            worker.append("claims it")
            store.append(f"mark {_dotted(event.mark)}")
        case What.READ:
            worker.append(f"reads {brackets(event.found)}\ndrafts {brackets(event.draft)}")
            if event.mark is not None and event.token is not None and event.mark < event.token:
                store.append(f"mark still {event.mark.dotted}")
        case What.STAMPED:
            worker.append(f"stamps it {token}")
        case What.STOPPED:
            worker.append("is stopped", "reverse")
        case What.EXPIRED:
            zookeeper.append(f"{name}'s session over")
        case What.RESUMED:
            worker.append("wakes up", "reverse")
        case What.WROTE | What.REFUSED:
            worker.append(f"writes {brackets(event.draft)}")
            if event.late:
                worker.append(" late", "bold")
            store.append_text(_refusal(event) if event.what is What.REFUSED else _acceptance(event, lost_before))
        case What.RELEASED:
            zookeeper.append("nobody holds")
            worker.append("gives it back")
    cells = {Lane.ZOOKEEPER: zookeeper, Lane[name]: worker, Lane.STORE: store}
    return {lane: cell for lane, cell in cells.items() if cell}


def brackets(lines: Lines | None) -> str:
    """A report for short: ``[A1 B1]``."""
    return f"[{' '.join(label_of(line) for line in lines or ())}]"


def _acceptance(event: Event, lost_before: Lines) -> Text:
    text = Text(brackets(event.report))
    if event.mark is not None:
        text.append(f"\nmark {_dotted(event.mark)}")
    for line in event.lost:
        if line not in lost_before:
            text.append(f"\n{label_of(line)} is lost!", BAD)
    return text


def _refusal(event: Event) -> Text:
    return Text(f"refuses {_dotted(event.token)}:\nmark {_dotted(event.mark)}", GOOD)


def _dotted(token: Token | None) -> str:
    return "none" if token is None else token.dotted
