"""Contender: one way to lock, and what the benchmark has to know about it. What it does is in its worker."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from . import _curator
from ._row import Row


@dataclass(frozen=True, slots=True)
class Contender:
    """``stays``: its worker serves cell after cell. A JVM must, to be warm; a Python worker is as good when new, and
    ends with each cell."""

    name: str
    title: str
    uncontended: bool = True
    contended: bool = True
    stays: bool = False

    def runs(self, row: Row) -> bool:
        return self.contended if row.contended else self.uncontended

    def command(self, build: Path, hosts: str, session_timeout: float) -> Sequence[str]:
        """Starts its worker. ``build``: where what was compiled for it is."""
        if self in CURATORS:
            return _curator.command(build, hosts, session_timeout, shared=self is CURATOR_SHARED)
        return [sys.executable, "-m", "benchmarks._locks._worker", self.name, hosts, str(session_timeout)]

    def missing(self) -> str | None:
        """What it needs and this machine has not."""
        if self in CURATORS:
            return _curator.missing()
        return None


ZKFENCE: Final = Contender("zkfence", "zkfence, connect()")
STOCK: Final = Contender("zkfence-stock", "zkfence, KazooClient")
AIO: Final = Contender("zkfence-aio", "zkfence.aio", uncontended=False)
KAZOO: Final = Contender("kazoo", "kazoo Lock")
# Curator's documentation says to re-use a single object, and threads may share it. But then each event wakes all of
# them, and each lists all contenders (CURATOR-716). With an object for each thread Curator is at its best.
CURATOR: Final = Contender("curator", "Curator", stays=True)
CURATOR_SHARED: Final = Contender("curator-shared", "Curator, one object", uncontended=False, stays=True)
RAW: Final = Contender("raw", "floor, no lock", contended=False)

CONTENDERS: Final = (ZKFENCE, STOCK, AIO, KAZOO, CURATOR, CURATOR_SHARED, RAW)
CURATORS: Final = (CURATOR, CURATOR_SHARED)
