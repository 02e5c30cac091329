"""Surroundings: what a protocol step may know of the world without asking ZooKeeper."""

from __future__ import annotations

from typing import Protocol


class Surroundings(Protocol):
    @property
    def session_id(self) -> int | None:
        """The id of the session, while disconnected too; ``None`` once it is lost, until there is a new one."""

    @property
    def connection(self) -> int:
        """A number that changes whenever the connection is lost: watches do not survive that."""

    @property
    def session_timeout(self) -> float:
        """Seconds."""

    def remaining(self) -> float:
        """Seconds for which the session surely lives, as far as its acknowledged writes prove it."""
