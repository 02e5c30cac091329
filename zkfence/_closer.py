"""Closer: closes every session in the background, when the process is about to end."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from ._connection._client import Client
from ._session import Session

_log: Final = logging.getLogger("zkfence")
_GRACE: Final = 0.5  # seconds that a server has to confirm the end of a session


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
        # First all that can be told without waiting, so that no server that is silent keeps the locks of others. Then
        # those that are connected.
        clients = [session.client for session in Session.all()]
        deadline = time.monotonic() + _GRACE
        told = [client for client in clients if isinstance(client, Client) and client.ask_to_end(_GRACE)]
        for ending in told:
            ending.await_end(deadline)
        for client in sorted(clients, key=lambda client: not client.connected):
            try:
                client.stop()
            except Exception:
                _log.exception("a ZooKeeper session could not be closed, and has to time out")
        self._done.set()
