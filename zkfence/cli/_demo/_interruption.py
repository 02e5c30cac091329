"""Interruption: Ctrl-C and its like, and the end of a deadline, at moments that can bear them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from types import FrameType
from typing import Final, Self

from ._failure import DemoFailed

_ENDINGS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal wants the demo to end. ``status`` is the exit status that shells expect then."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.status = 128 + signum


class _State(Enum):
    SHELTERED = auto()  # signals are remembered
    WAITING = auto()  # signals are raised at once
    ENDING = auto()  # signals change nothing any more


class Interruption:
    """Turns signals into exceptions, but only inside `waiting` and `check`.

    An exception that comes out of the blue, while a server is being started, could leave that server behind. So
    everything that starts or cleans up something is sheltered, and everything that merely waits is not.

    A second signal in a shelter ends the process at once: then the guards of the temporary folders clean up.
    """

    def __init__(self) -> None:
        self._state = _State.SHELTERED
        self._received: int | None = None

    def __enter__(self) -> Self:
        # One that is ignored already (nohup, a background job) stays so.
        wanted = [signum for signum in _ENDINGS if signal.getsignal(signum) is not signal.SIG_IGN]
        self._before = {signum: signal.signal(signum, self._receive) for signum in wanted}
        self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._time_is_up)
        return self

    def __exit__(self, *exception: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    @contextmanager
    def waiting(self, awaited: str, timeout: float) -> Iterator[None]:
        """A block that signals may leave at any point. Raises `DemoFailed` if it takes longer than ``timeout`` seconds:
        ``awaited`` did not come.
        """
        self._awaited, self._timeout = awaited, timeout
        self._state = _State.WAITING  # before the look at what came earlier: nothing can fall between the two
        try:
            self.check()
            signal.setitimer(signal.ITIMER_REAL, timeout)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            if self._state is _State.WAITING:
                self._state = _State.SHELTERED

    def check(self) -> None:
        """Raise `Interrupted` if a signal has come."""
        if self._received is not None:
            self.end()
            raise Interrupted(self._received)

    def end(self) -> None:
        """From here on the demo is ending anyway, and must be let."""
        self._state = _State.ENDING

    def _receive(self, signum: int, _: FrameType | None) -> None:
        if self._state is _State.ENDING:
            return
        if self._received is not None:
            os._exit(128 + signum)
        self._received = signum
        if self._state is _State.WAITING:
            self.check()

    def _time_is_up(self, _: int, __: FrameType | None) -> None:
        if self._state is _State.WAITING:
            self._state = _State.SHELTERED
            raise DemoFailed(f"{self._awaited} did not come within {self._timeout:g} s")
