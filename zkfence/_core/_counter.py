"""CounterPath: what a client remembers of a lock between acquisitions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CounterPath:
    """Holds for one very node in one very session: a namespace that was deleted and made anew issues its epochs again,
    and a wiped ensemble even its transaction ids."""

    epoch: int
    session_id: int
    czxid: int = 0  # of the counter path; 0: nothing is known yet
    namespace_id: str = ""
    drained: bool = False  # no older counter path has a contender below CEILING, and none can come
    next_number: int | None = None  # a guess
    crowd: int = 0  # so many contenders were seen last
