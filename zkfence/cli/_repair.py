"""The commands ``zkfence epoch raise`` and ``zkfence namespace adopt``."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import asdict
from typing import Annotated, Any, Final, NoReturn

import typer
from kazoo.exceptions import KazooException

from zkfence_receivers.words import InvalidToken, Token, ZkfenceError

from .._client import connect
from .._repair import Remaining, Repair, plan, repair

_DOTTED: Final = re.compile(r"([0-9]{1,10})\.([0-9]{1,10})", re.ASCII)
_SHOWN: Final = 10  # locks that are named one by one
_REFUSED, _REMAINING = 1, 3

RAISE_HELP: Final = """\
Let all locks go on above TOKEN, after ZooKeeper was restored from an older copy of its data (TokenRegressed).

Nothing is ever lowered, and nobody's lock is taken away. Locks that nobody uses are raised at once; for those that are
held it waits in line, and names the ones that remain. Run it as often as you like, while workers work.

Exit status: 0 if every lock is raised; 1 if it was refused or has failed; 2 for wrong arguments; 3 if locks remain.
"""
ADOPT_HELP: Final = """\
Let a ZooKeeper that was made anew go on where the lost one was (WrongNamespace): with its id, above TOKEN.

ONLY if the old ensemble is gone for good, and its workers are stopped. Two living ensembles with one id hand out the
same locks twice, and no store can tell them apart. If a worker is merely connected to the wrong ensemble, connect it to
the right one instead.

Otherwise like `zkfence epoch raise`. Best done before the workers start: what they claim under the new ensemble's own
id is refused after the adoption.
"""

epoch: Final = typer.Typer(no_args_is_help=True, help="The epochs of a namespace.")
namespace: Final = typer.Typer(no_args_is_help=True, help="The identity of a namespace.")


def _token(text: str) -> Token:
    """``epoch.sequence`` or the decimal wire form."""
    try:
        match = _DOTTED.fullmatch(text)
        if match is None:
            return Token.parse(text)
        epoch, sequence = int(match[1]), int(match[2])
        return Token(sequence) if epoch == 0 and sequence < 2**31 else Token.of(epoch, sequence)
    except InvalidToken as error:
        raise typer.BadParameter(f"a token is epoch.sequence, such as 7.41, or its decimal number: {error}") from error


Above = Annotated[
    Token, typer.Option("--above", metavar="TOKEN", parser=_token, help="The largest token that any store knows.")
]
Zk = Annotated[
    str,
    typer.Option("--zk", metavar="HOSTS", envvar="ZKFENCE_ZK", help="ZooKeeper, as host:port,host:port/chroot."),
]
Auth = Annotated[
    str | None,
    typer.Option(
        "--zk-auth",
        metavar="SCHEME:CREDENTIAL",
        envvar="ZKFENCE_ZK_AUTH",
        show_default=False,
        help="Authentication, such as digest:user:password; better in the environment, where it is not listed.",
    ),
]
Namespace = Annotated[str, typer.Option("--namespace", metavar="PATH", help="The path of the namespace.")]
Wait = Annotated[
    float, typer.Option("--wait", min=0.0, metavar="SECONDS", help="How long to wait, in all, for locks that are held.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Tell what would be done, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Force = Annotated[bool, typer.Option("--force", help="Do it although it looks like a mistake.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, at the end.")]
Id = Annotated[str, typer.Option("--id", metavar="ID", help="The id of the lost namespace, as the refusal names it.")]


@epoch.command("raise", help=RAISE_HELP)
def raise_epoch(
    above: Above,
    zk: Zk,
    path: Namespace = "/zkfence",
    auth: Auth = None,
    wait: Wait = 30.0,
    dry_run: DryRun = False,
    yes: Yes = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    _Command(above, zk, path, None, auth, as_json).run(wait=wait, dry_run=dry_run, yes=yes, force=force)


@namespace.command("adopt", help=ADOPT_HELP)
def adopt_namespace(
    namespace_id: Id,
    above: Above,
    zk: Zk,
    path: Namespace = "/zkfence",
    auth: Auth = None,
    wait: Wait = 30.0,
    dry_run: DryRun = False,
    yes: Yes = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    _Command(above, zk, path, namespace_id, auth, as_json).run(wait=wait, dry_run=dry_run, yes=yes, force=force)


class _Command:
    """One repair, from the plan over the question to the report. With ``--json`` only that goes to standard output."""

    def __init__(
        self, above: Token, zk: str, path: str, namespace_id: str | None, auth: str | None, as_json: bool
    ) -> None:
        self._above = above
        self._zk = zk
        self._wishes: dict[str, Any] = {"namespace": path, "namespace_id": namespace_id}
        self._options: dict[str, Any] = {} if auth is None else {"auth": [_credential(auth)]}
        self._as_json = as_json

    def run(self, *, wait: float, dry_run: bool, yes: bool, force: bool) -> None:
        _log_to_stderr()
        try:
            with connect(self._zk, **self._options) as client:
                planned = plan(client, self._above, **self._wishes)
                self._explain(planned)
                if dry_run:
                    self._end(planned, dry_run=True)
                if planned.objections and not force:
                    self._refuse("This looks like a mistake, and nothing was done. If it is none: --force")
                if not yes and not typer.confirm("Go on?", err=True):
                    self._refuse("Nothing was done.")
                done = repair(
                    client, self._above, wait=wait, force=force, on_waiting=self._tell_waiting, **self._wishes
                )
        except (ZkfenceError, KazooException, OSError, ValueError) as error:
            self._refuse(f"{type(error).__name__}: {error}")
        self._end(done, dry_run=False)

    def _explain(self, planned: Repair) -> None:
        self._tell(f"ZooKeeper {self._zk}, namespace {planned.namespace}")
        if planned.former_id is None:
            self._tell(f"  id         is not there yet, is made with the id {planned.namespace_id}")
        elif planned.former_id == planned.namespace_id:
            self._tell(f"  id         {planned.namespace_id}")
        else:
            self._tell(f"  id         {planned.former_id}  ->  {planned.namespace_id}")
            self._tell("             Is the old ensemble gone for good, and are its workers stopped? Two living")
            self._tell("             ensembles with one id hand out the same locks twice.")
            self._tell(f"             What was first claimed under {planned.former_id} will be refused.")
        self._tell(f"  last epoch {planned.former_epoch or 0}  ->  {planned.epoch}")
        self._tell(f"  locks      {planned.locks}, of them {planned.retired} to be raised at once,")
        self._tell(f"             {len(planned.remaining)} in use, to be raised when they are free")
        self._name(planned.remaining)
        for objection in planned.objections:
            self._tell(f"  MISTAKE?   {objection}")

    def _tell_waiting(self, busy: Remaining) -> None:
        self._tell(f"  waiting for lock {busy.lock_name!r}: {busy.why}")

    def _end(self, repair: Repair, *, dry_run: bool) -> NoReturn:
        if self._as_json:
            fields = asdict(repair) | {"above": str(repair.above), "dry_run": dry_run}
            typer.echo(json.dumps(fields, indent=2))
        if dry_run:
            self._tell("Nothing was done: --dry-run")
            raise typer.Exit
        if not repair.remaining:
            self._tell(f"Done: every lock goes on above token {repair.above.dotted}; {repair.retired} were raised.")
            raise typer.Exit
        self._tell(
            f"{repair.retired} locks were raised, {len(repair.remaining)} remain below: their next tokens may be "
            "refused. Run this again when they are free:"
        )
        self._name(repair.remaining)
        raise typer.Exit(_REMAINING)

    def _name(self, remaining: tuple[Remaining, ...]) -> None:
        for each in remaining[:_SHOWN]:
            self._tell(f"             {each.lock_name!r}: {each.why} ({each.path})")
        if len(remaining) > _SHOWN:
            self._tell(f"             … and {len(remaining) - _SHOWN} more; --json names them all")

    def _refuse(self, reason: str) -> NoReturn:
        typer.echo(reason, err=True)
        raise typer.Exit(_REFUSED)

    def _tell(self, line: str) -> None:
        typer.echo(line, err=self._as_json)


def _credential(auth: str) -> tuple[str, str]:
    scheme, colon, credential = auth.partition(":")
    if not colon:
        raise typer.BadParameter("--zk-auth is SCHEME:CREDENTIAL, such as digest:user:password")
    return scheme, credential


def _log_to_stderr() -> None:
    """What zkfence logs, the audit line above all; of kazoo only what is really bad."""
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s", level=logging.ERROR)
    logging.getLogger("zkfence").setLevel(logging.INFO)
