"""Cell: what one contender did in one row, in one round."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from ._received import Received, received_from
from ._row import Row
from ._servers import Servers
from ._worker_process import WorkerFailed, WorkerProcess

_ANSWER_TIMEOUT: Final = 60.0
_LINE_TIMEOUT: Final = 180.0  # a thousand contenders list a thousand nodes each
_LOOK_EVERY: Final = 0.1


@dataclass(frozen=True, slots=True)
class Cell:
    """``cycles`` of acquire and release in ``seconds``, with the client's CPU time (seconds) and the bytes that its
    connections received meanwhile."""

    cycles: int
    seconds: float
    cpu: float
    received: int

    @property
    def rate(self) -> float:
        """Cycles per second."""
        return self.cycles / self.seconds

    @property
    def cpu_per_cycle(self) -> float | None:
        """Seconds."""
        return self.cpu / self.cycles if self.cycles else None

    @property
    def bytes_per_cycle(self) -> float | None:
        return self.received / self.cycles if self.cycles else None


@dataclass(frozen=True, slots=True)
class Window:
    """How long a cell is measured, in seconds: at least ``least``, then until there were as many cycles as there are
    contenders, but no longer than ``most``."""

    least: float
    most: float

    @property
    def settling(self) -> float:
        """What passes before, unmeasured: the first cycles are not like the others."""
        return min(0.3, self.least / 4)


def measure(worker: WorkerProcess, servers: Servers, row: Row, lock_name: str, window: Window) -> Cell:
    """Raises `WorkerFailed`; the worker is ended then."""
    try:
        return _measure(worker, servers, row, lock_name, window)
    except BaseException:
        worker.kill()
        raise


def _measure(worker: WorkerProcess, servers: Servers, row: Row, lock_name: str, window: Window) -> Cell:
    worker.ask(f"start {row.name} {lock_name}", timeout=_LINE_TIMEOUT)
    if row.contended and not servers.wait_for_contenders(row.size + 1, _LINE_TIMEOUT):
        raise WorkerFailed(f"not all stood in line after {_LINE_TIMEOUT:g} s")
    worker.ask("go", timeout=_ANSWER_TIMEOUT)
    gone = _Sample.take(worker, servers)
    # Alone, everybody opens a lock of his own; the one that they contend for was opened by who held it before `go`.
    first = _later(worker, servers, gone, window.settling, 0 if row.contended else row.size, window.most)
    last = _later(worker, servers, first, window.least, row.size, window.most)
    worker.stop(timeout=_ANSWER_TIMEOUT)
    if not servers.wait_for_contenders(0, _ANSWER_TIMEOUT):
        raise WorkerFailed("its nodes outlived its session")
    return last.since(first)


def _later(
    worker: WorkerProcess, servers: Servers, earlier: _Sample, least: float, cycles: int, most: float
) -> _Sample:
    """The state after ``least`` seconds and so many cycles, or after ``most`` seconds."""
    pause = least
    while True:
        time.sleep(pause)
        sample = _Sample.take(worker, servers)
        elapsed = sample.seconds - earlier.seconds
        if elapsed >= most or (elapsed >= least and sample.cycles - earlier.cycles >= cycles):
            return sample
        pause = max(_LOOK_EVERY, least - elapsed)


@dataclass(frozen=True, slots=True)
class _Sample:
    cycles: int
    seconds: float
    cpu: float
    received: Received

    @classmethod
    def take(cls, worker: WorkerProcess, servers: Servers) -> _Sample:
        answer = worker.ask("sample", timeout=_ANSWER_TIMEOUT)
        if answer["failure"]:
            raise WorkerFailed(answer["failure"])
        return cls(answer["cycles"], answer["seconds"], answer["cpu"], received_from(servers.port))

    def since(self, first: _Sample) -> Cell:
        if self.received.keys() != first.received.keys():
            raise WorkerFailed("it has changed its connection while it was measured")
        received = sum(self.received.values()) - sum(first.received.values())
        return Cell(self.cycles - first.cycles, self.seconds - first.seconds, self.cpu - first.cpu, received)
