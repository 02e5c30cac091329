"""Doorbell: wakes the connection's thread when there is a request to send."""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from typing import Final

_RING: Final = b"\0"


class Doorbell:
    """Both ends of what kazoo has a pair of sockets for: one byte for each request that was queued.

    The bytes are only counted. A real one is sent only where the connection's thread sleeps, or is about to: so a ring
    costs next to nothing while the thread is busy, and never blocks, however long nobody answers.

    No ring is lost: a ring is counted *before* it is looked whether the thread sleeps, and the thread says that it
    sleeps *before* it looks at the count. Whichever comes first, one of the two sees the other.
    """

    def __init__(self) -> None:
        self._inside, self._outside = socket.socketpair()
        self._inside.setblocking(False)
        self._outside.setblocking(False)
        self._rings: deque[None] = deque()
        self._asleep = False

    def send(self, data: bytes) -> int:
        """Ring once. Any thread may; raises OSError when the bell is closed.

        A signal handler may raise at any of these lines: then it has not rung, or has rung.
        """
        try:
            self._rings.append(None)
        finally:
            if self._asleep:
                try:  # noqa: SIM105  # with each request; suppress() costs more than the rest
                    self._outside.send(_RING)
                except BlockingIOError:  # full of rings: enough
                    pass
        return len(data)

    # --- the connection's thread ---------------------------------------------------------------------------------

    @property
    def at_hand(self) -> bool:
        """It has rung."""
        return bool(self._rings)

    def recv(self, size: int) -> bytes:
        """Take one ring; as with a socket that does not block, OSError where there is none."""
        try:
            self._rings.popleft()
        except IndexError:
            raise BlockingIOError from None
        return _RING

    def answer(self) -> None:
        """Take all rings. What they rang for must be looked for afterwards."""
        self._rings.clear()

    def doze(self) -> bool:
        """Say that the thread is going to sleep on `fileno`; tells whether it may. `rouse` must follow."""
        self._asleep = True
        return not self._rings

    def rouse(self, *, rung: bool) -> None:
        """The thread is awake; ``rung``: it was this bell that could be read."""
        self._asleep = False
        if rung:
            with contextlib.suppress(BlockingIOError):
                self._inside.recv(4096)

    def fileno(self) -> int:
        return self._inside.fileno()

    def close(self) -> None:
        """As each end of a pair is closed."""
        self._inside.close()
        self._outside.close()
