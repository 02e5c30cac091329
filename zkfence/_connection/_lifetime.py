"""The end of a process, and the beginning of a forked one, for the clients that it has."""

from __future__ import annotations

import atexit
import os
import time
from typing import Final, Protocol
from weakref import WeakSet

_FAREWELL: Final = 1.0  # seconds


class Mortal(Protocol):
    """A client, as the process's end sees it."""

    def ask_to_end(self, grace: float) -> bool: ...

    def await_end(self, deadline: float) -> None: ...

    def forget(self) -> None: ...


_started: Final[WeakSet[Mortal]] = WeakSet()


def started(client: Mortal) -> None:
    """``client`` has a session from now on, unless it was stopped."""
    _started.add(client)


def _say_farewell() -> None:
    """End the sessions that nobody has ended, so that their locks need not wait for the session timeout."""
    deadline = time.monotonic() + _FAREWELL
    ending = [client for client in list(_started) if client.ask_to_end(_FAREWELL)]
    for client in ending:
        client.await_end(deadline)


def _forget_all() -> None:
    """In a forked child: the sessions are the parent's."""
    for client in list(_started):
        client.forget()
    _started.clear()


atexit.register(_say_farewell)
os.register_at_fork(after_in_child=_forget_all)
