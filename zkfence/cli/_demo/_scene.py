"""Scene: two workers, one report, one lock; what they can be made to do, and what is seen of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from zkfence import Token
from zkfence.testing import Zombie, waiting
from zkfence_receivers.testing._wait import wait_until

from ._audience import Audience
from ._report import Lines, lines_of
from ._stage import LOCK, Stage
from ._timeline import Event, What
from ._verdict import LateWrite, Outcome, Verdict, missing
from ._worker import PATIENCE, Answer, Worker


@dataclass(slots=True)
class Player:
    """One of the two workers, and how far it has come. ``line`` is the one that it wants to add to what it has read."""

    worker: Worker
    token: Token | None = None
    path: str = ""
    line: str = ""
    draft: Lines = ()
    late: bool = False

    @property
    def name(self) -> str:
        return self.worker.name


class Scene:
    """Whatever the workers are made to do is awaited, and taken down as an event, together with what the store really
    holds afterwards. Nothing here waits for time to pass.
    """

    def __init__(self, stage: Stage, resource: str, workers: tuple[Worker, Worker], audience: Audience) -> None:
        self._stage = stage
        self._resource = resource
        self._audience = audience
        self._acknowledged: Lines = ()
        self._refused: Lines = ()
        self._late_write: LateWrite | None = None
        self.events: Final[list[Event]] = []
        self.a, self.b = (Player(worker) for worker in workers)

    def begin(self) -> None:
        """Wait until both workers have a session at ZooKeeper."""
        with self._audience.waiting(a="starts", b="starts"):
            for player in (self.a, self.b):
                player.worker.answer()

    def end(self) -> None:
        for player in (self.a, self.b):
            player.worker.dismiss()

    def verdict(self, told: Outcome) -> Verdict:
        """Read from the store now."""
        return Verdict(told, self._late_write, self._acknowledged, self._refused, self._report())

    # --- the lock -----------------------------------------------------------------------------------------------

    def acquire(self, player: Player) -> None:
        """Take the lock, which is free."""
        player.worker.tell("acquire")
        self.granted(player)

    def queue(self, player: Player) -> None:
        """Get in line behind the holder. ZooKeeper confirms that."""
        player.worker.tell("acquire")
        in_line = waiting(LOCK, namespace=self._stage.namespace)
        with self._stage.interruption.waiting(f"the place in line of worker {player.name}", PATIENCE):
            wait_until(lambda: in_line(self._stage.zk, player.worker.pid), 2 * PATIENCE)
        self._note(What.QUEUED, player)

    def granted(self, player: Player) -> None:
        """Wait until it is this one's turn."""
        answer = player.worker.answer()
        player.token, player.path = Token.parse(answer["token"]), answer["path"]
        self._note(What.GRANTED, player)

    def release(self, player: Player) -> None:
        player.worker.ask("release")
        self._note(What.RELEASED, player)

    @contextmanager
    def stopped(self, player: Player) -> Iterator[None]:
        """The worker is stopped in its tracks, until `wake`. The block begins when ZooKeeper has ended its session."""
        with Zombie(player.worker.pid) as zombie:
            zombie.pause()
            self._note(What.STOPPED, player)
            limit = self._stage.session_timeout + PATIENCE
            with (
                self._audience.waiting(zookeeper=f"waits for {player.name}"),
                self._stage.interruption.waiting(f"the end of the session of worker {player.name}", limit + 1),
            ):
                zombie.pause_past_session(self._stage.zk, player.path, timeout=limit)
            player.late = True
            self._note(What.EXPIRED, player)
            yield

    # --- the report ---------------------------------------------------------------------------------------------

    def claim(self, player: Player) -> None:
        player.worker.ask("claim")
        self._note(What.CLAIMED, player)

    def read(self, player: Player, line: str) -> None:
        """Through the handle of a claim; ``line`` is what it wants to add."""
        self._draft(player, line, player.worker.ask("read", line=line), claimed=True)

    def peek(self, player: Player, line: str) -> None:
        """Past the receiver, without a claim."""
        self._draft(player, line, player.worker.ask("peek", line=line), claimed=False)

    def stamp(self, player: Player) -> None:
        """Stamp the request that writes the draft: it is as good as sent."""
        player.worker.ask("stamp")
        self._note(What.STAMPED, player, draft=player.draft)

    def write(self, player: Player) -> None:
        """Through the handle of a claim."""
        self._wrote(player, player.worker.ask("write"))

    def put(self, player: Player) -> None:
        """Past the receiver, without any fence."""
        self._wrote(player, player.worker.ask("put"))

    def send(self, player: Player) -> None:
        """What was stamped before."""
        self._wrote(player, player.worker.ask("send"))

    def wake(self, player: Player, order: str) -> None:
        """Let a stopped worker go on, straight into ``order``: "put" or "send"."""
        player.worker.tell(order)
        self._note(What.RESUMED, player)  # before it happens: afterwards the store may already show what it leads to
        Zombie(player.worker.pid).resume()
        answer = player.worker.answer()
        self._late_write = LateWrite.ACCEPTED if answer["done"] else LateWrite.REFUSED
        self._wrote(player, answer)

    def _draft(self, player: Player, line: str, answer: Answer, *, claimed: bool) -> None:
        player.line, player.draft = line, tuple(answer["draft"])
        self._note(What.READ, player, claimed=claimed, found=tuple(answer["found"]), draft=player.draft)

    def _wrote(self, player: Player, answer: Answer) -> None:
        if answer["done"]:
            self._acknowledged += (player.line,)
            self._note(What.WROTE, player, draft=player.draft)
        else:
            self._refused += (player.line,)
            self._note(What.REFUSED, player, draft=player.draft, error=answer["refused"])

    # --- what is seen -------------------------------------------------------------------------------------------

    def _note(
        self,
        what: What,
        player: Player,
        *,
        claimed: bool | None = None,
        found: Lines | None = None,
        draft: Lines | None = None,
        error: str | None = None,
    ) -> None:
        report, mark = self._report(), self._stage.store.receiver.mark(self._resource)
        event = Event(
            at=self._stage.clock(),
            what=what,
            worker=player.name,
            token=player.token,
            claimed=claimed,
            late=player.late if what in (What.WROTE, What.REFUSED) else None,
            found=found,
            draft=draft,
            report=report,
            mark=None if mark is None else mark.token,
            lost=missing(self._acknowledged, report),
            error=error,
        )
        self.events.append(event)
        self._audience.event(event)

    def _report(self) -> Lines:
        return lines_of(self._stage.store.peek(self._resource))
