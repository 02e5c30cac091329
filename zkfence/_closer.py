"""Closer: closes every session in the background, when the process is about to end."""

from __future__ import annotations

import logging
import threading
from typing import Final

from ._session import Session

_log: Final = logging.getLogger("zkfence")


class Closer:
    """A thread that waits until it is needed: a process that is about to end cannot start threads any more, and nobody
    should have to wait for a client that takes long to stop because it has lost its servers."""

    def __init__(self) -> None:
        self._wanted = threading.Event()
        self._done = threading.Event()
        self._dismissed = False
        threading.Thread(target=self._run, name="zkfence-closer", daemon=True).start()

    def close_sessions(self, within: float) -> None:
        """Close the session of every client that a lock was made with; give up waiting after ``within`` seconds."""
        self._wanted.set()
        self._done.wait(within)

    def dismiss(self) -> None:
        """It is not needed; nothing is closed."""
        self._dismissed = True
        self._wanted.set()

    def _run(self) -> None:
        self._wanted.wait()
        if self._dismissed:
            return
        # First those that can be told at once.
        for client in sorted((session.client for session in Session.all()), key=lambda client: not client.connected):
            try:
                client.stop()
            except Exception:
                _log.exception("a ZooKeeper session could not be closed, and has to time out")
        self._done.set()
