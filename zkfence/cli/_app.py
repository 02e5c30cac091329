"""The commands."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated, Final

import typer

from . import _repair
from ._demo._command import HELP, demo

app: Final = typer.Typer(
    name="zkfence",
    help="Locks on ZooKeeper whose every grant carries a fencing token, and storage that refuses a stale holder.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(help=HELP)(demo)
app.add_typer(_repair.epoch, name="epoch")
app.add_typer(_repair.namespace, name="namespace")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"zkfence {version('zkfence')}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A callback makes typer keep the commands' names even while there is only one of them."""
