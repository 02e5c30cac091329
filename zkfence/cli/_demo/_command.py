"""The command ``zkfence demo``."""

from __future__ import annotations

import json
import logging
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final

import typer
from kazoo.exceptions import KazooException

from zkfence_receivers.words import ZkfenceError

from ._assignment import StoreKind
from ._audience import Audience
from ._interruption import Interrupted, Interruption
from ._performance import Performance
from ._screen import Screen
from ._stage import Wishes
from ._timeline import Clock

HELP: Final = """\
What fencing is for, in three acts with real processes.

Two workers, A and B, write one report under one ZooKeeper lock. A is stopped (SIGSTOP) until its session is over and B
has the lock. Then A wakes up and goes on with its write, too late.

The demo starts a ZooKeeper of its own on a free port of this machine, takes about 20 seconds, and leaves no process and
no file behind. On servers of yours it uses names of its own, and removes them.

Exit status: 0 if every act went as told, judged by what the store really holds; 1 if not; 2 if the demo could not be
played to its end.
"""


def demo(
    receiver: Annotated[
        StoreKind | None,
        typer.Option(help="Where the reports are: plain files (the default), or a Redis server.", show_default=False),
    ] = None,
    redis: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A Redis server that runs, as redis://host:port/0.", show_default=False),
    ] = None,
    zk: Annotated[
        str | None,
        typer.Option(metavar="HOSTS", help="A ZooKeeper that runs, as host:port,host:port.", show_default=False),
    ] = None,
    session_timeout: Annotated[
        float,
        typer.Option(min=1.0, max=60.0, metavar="SECONDS", help="How long a worker may be silent and keep its lock."),
    ] = 2.0,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder with the reports.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, at the end.")] = False,
) -> None:
    if receiver is None:
        receiver = StoreKind.FILE if redis is None else StoreKind.REDIS
    if redis is not None and receiver is not StoreKind.REDIS:
        raise typer.BadParameter("--redis goes with --receiver redis")
    if keep and receiver is not StoreKind.FILE:
        raise typer.BadParameter("--keep goes with --receiver file: there is no folder otherwise")
    folder = Path(tempfile.mkdtemp(prefix="zkfence-demo-reports-")) if keep else None
    status = _run(Wishes(receiver, zk, redis, session_timeout, folder), as_json=as_json)
    if folder is not None:
        typer.echo(f"The reports are in {folder}", err=as_json)
    raise typer.Exit(status)


def _run(wishes: Wishes, *, as_json: bool) -> int:
    # What matters of kazoo's news, the demo tells itself.
    logging.getLogger().addHandler(logging.NullHandler())
    clock = Clock()
    audience = Audience() if as_json else Screen(clock)
    performance = Performance()
    problem = None
    try:
        with Interruption() as interruption:
            performance.run(wishes, interruption, audience, clock)
    except Interrupted as interrupted:
        audience.trouble(f"{interrupted}: stopped and cleaned up.")
        return interrupted.status
    except (ZkfenceError, KazooException, OSError, ImportError) as error:
        problem = str(error) or type(error).__name__
        audience.trouble(f"The demo could not be played to its end: {problem}")
    if as_json:
        typer.echo(json.dumps(_as_dict(performance, wishes, problem), indent=2))
    elif problem is None:
        audience.finale([(played.act.heading, played.verdict) for played in performance.played])
    if problem is not None:
        return 2
    return 0 if performance.as_told else 1


def _as_dict(performance: Performance, wishes: Wishes, problem: str | None) -> dict[str, object]:
    return {
        "version": version("zkfence"),
        "receiver": wishes.store,
        "session_timeout": wishes.session_timeout,
        "ok": problem is None and performance.as_told,
        "error": problem,
        "acts": [played.to_dict() for played in performance.played],
    }
