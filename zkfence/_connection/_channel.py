"""Channel: the socket to a server, read ahead and written behind."""

from __future__ import annotations

import select
import socket
import ssl
from typing import Any, Final

_CHUNK: Final = 64 * 1024
_BACKLOG: Final = 1024 * 1024  # bytes written behind; more has to wait until the server takes them


class Channel:
    """A connected socket, plain or TLS, as kazoo's connection uses one: what has come waits in it to be read, and what
    is to be sent waits for `flush`, many requests at once.

    For one thread at a time. Until ``setblocking(False)`` it is an ordinary socket: kazoo also asks servers four-letter
    words on one.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._tls = sock if isinstance(sock, ssl.SSLSocket) else None
        self._in = b""
        self._out = bytearray()
        self._announced = False
        self._reading_wants: int = select.POLLIN
        self._writing_wants: int = select.POLLOUT

    # --- a socket, as kazoo's own loop wants one ------------------------------------------------------------------

    def fileno(self) -> int:
        return self._sock.fileno()

    def getpeername(self) -> Any:
        return self._sock.getpeername()

    def setblocking(self, blocking: bool) -> None:
        self._sock.setblocking(blocking)

    def pending(self) -> int:
        """How many bytes can be read without asking the system."""
        return len(self._in) or (self._tls.pending() if self._tls else 0)

    def recv(self, size: int) -> bytes:
        """Up to ``size`` bytes. They are read ahead; raises BlockingIOError or ssl.SSLWantReadError like a socket."""
        self._announced = False
        if not self._in:
            self._in = self._sock.recv(_CHUNK)
        taken, self._in = self._in[:size], self._in[size:]
        return taken

    def send(self, data: Any) -> int:
        """Take all of ``data``, to be sent by `flush`."""
        self._out += data
        return len(data)

    def sendall(self, data: bytes) -> None:
        self._sock.sendall(data)

    def close(self) -> None:
        self._sock.close()

    # --- what a loop needs ----------------------------------------------------------------------------------------

    @property
    def at_hand(self) -> bool:
        """There is something to read without asking the system."""
        return self._announced or self.pending() > 0

    @property
    def has_room(self) -> bool:
        """More may be sent."""
        return len(self._out) < _BACKLOG

    @property
    def wants(self) -> int:
        """The events to poll for."""
        return self._reading_wants | self._writing_wants if self._out else self._reading_wants

    def announce(self) -> None:
        """Pass for readable until it is read."""
        self._announced = True

    def flush(self) -> None:
        """Send what the system takes now. Raises OSError when the connection is broken."""
        while self._out:
            try:
                sent = self._sock.send(self._out)
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._writing_wants = select.POLLOUT
                return
            except ssl.SSLWantReadError:
                self._writing_wants = select.POLLIN
                return
            del self._out[:sent]

    def receive(self) -> bytes | None:
        """All that was read ahead, or one chunk of what has come; b"" at the end of the stream, ``None``: nothing
        yet. Raises OSError when the connection is broken."""
        self._announced = False
        if self._in:
            ahead, self._in = self._in, b""
            return ahead
        self._reading_wants = select.POLLIN
        try:
            return self._sock.recv(_CHUNK)
        except (BlockingIOError, ssl.SSLWantReadError):
            return None
        except ssl.SSLWantWriteError:
            self._reading_wants = select.POLLOUT
            return None
