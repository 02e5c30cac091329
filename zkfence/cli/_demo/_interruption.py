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
_AGAIN: Final = 1.0  # seconds after which an exception is raised again, where somebody has caught it


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
            signal.setitimer(signal.ITIMER_REAL, timeout, _AGAIN)
            yield
            self.check()
        except Exception:
            self.check()  # kazoo for one catches whatever is raised while it sends, and raises something else
            raise
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._state = _State.SHELTERED if self._received is None else _State.ENDING

    def check(self) -> None:
        """Raise `Interrupted` if a signal has come."""
        if self._received is not None:
            self.end()
            raise Interrupted(self._received)

    def end(self) -> None:
        """From here on the demo is ending anyway, and must be let."""
        self._state = _State.ENDING

    def _receive(self, signum: int, _: FrameType | None) -> None:
        match self._state:
            case _State.SHELTERED if self._received is not None:
                os._exit(128 + signum)
            case _State.SHELTERED:
                self._received = signum
            case _State.WAITING if self._received is None:
                self._received = signum
                signal.setitimer(signal.ITIMER_REAL, _AGAIN, _AGAIN)
                raise Interrupted(signum)

    def _time_is_up(self, _: int, __: FrameType | None) -> None:
        if self._state is not _State.WAITING:
            return
        if self._received is not None:
            raise Interrupted(self._received)
        raise DemoFailed(f"{self._awaited} did not come within {self._timeout:g} s")
