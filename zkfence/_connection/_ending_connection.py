"""EndingConnection: kazoo's connection, which ends in bounded time."""

from __future__ import annotations

import threading
import time

from kazoo.protocol.connection import ConnectionHandler

from ._ending import Stopped
from ._handler import Handler


class EndingConnection(ConnectionHandler):
    """Kazoo's connection, which ends in bounded time, and keeps what its last attempt to connect has met."""

    handler: Handler
    last_failure: tuple[str, Exception] | None = None
    _orphan = False

    def stop(self, timeout: float | None = None) -> bool:
        """Wait until the connection's thread has ended, for ``timeout`` seconds at most; tells whether it has.

        It may be looking up a host name, which nobody can stop, or be telling a listener that blocks. Called in that
        very thread (by a listener), it does not wait.
        """
        routine = self._connection_routine
        if routine is None:
            return bool(self.connection_stopped.wait(timeout))
        if routine is threading.current_thread():
            return False
        deadline = None if timeout is None else time.monotonic() + timeout
        self.connection_stopped.wait(timeout)
        routine.join(None if deadline is None else max(deadline - time.monotonic(), 0))
        if routine.is_alive():
            return False
        self._connection_routine = None
        return True

    def close(self) -> None:
        """Release what the connection has open; a thread that could not be waited for does it in the end."""
        routine = self._connection_routine
        if routine is not None:
            self._orphan = True  # before the look: now one of both closes, or both
            if routine.is_alive():
                return
        super().close()

    def zk_loop(self) -> None:
        try:
            super().zk_loop()
        finally:
            if self._orphan:
                super().close()

    def disown(self) -> None:
        """In a forked child: close the copies of the parent's descriptors, and say nothing to anybody."""
        for thing in (self._socket, self._read_sock, self._write_sock):
            if thing is not None:
                thing.close()

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        self.handler.expect((hostip, port), host)
        try:
            timeouts = super()._connect(host, hostip, port)
        except Exception as error:
            # One address of a server may refuse (localhost has two of them), and the other one tell what is wrong.
            if self.last_failure is None or not isinstance(error.__context__, Stopped | ConnectionRefusedError):
                self.last_failure = f"{host}:{port}", error
            raise
        self.last_failure = None
        return timeouts
