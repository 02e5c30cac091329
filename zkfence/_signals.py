"""exit_on_signals: a worker that is told to end gives its locks back first."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from enum import Enum, auto
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Any, Final

from kazoo.client import KazooClient

from ._closer import Closer

_log: Final = logging.getLogger("zkfence")

_CLOSING: Final = 1.0  # seconds for ZooKeeper to hear that the sessions end
_UNWINDING: Final = 1.0  # seconds for the last `finally` blocks
_PAUSE: Final = 0.01
_TICK: Final = 0.2


def exit_on_signals(*signals: signal.Signals, grace: float = 7.0, interrupt: bool = True) -> ExitOnSignals:
    """End this process in good order when it is told to: what it holds is released before it is gone.

    A bare SIGTERM ends Python without any clean-up: the session, and with it every lock, stays until it times out. ::

        with zkfence.exit_on_signals(), zkfence.connect(hosts) as zk:
            with FencedLock(zk, "reports/7") as grant: ...

        async with zkfence.exit_on_signals() as stopping: ...  # in an asyncio program

    The block gets an event (`threading.Event`, or `asyncio.Event`), here ``stopping``, that a signal sets: loops in
    other threads look at it between two pieces of work. Then:

    - SystemExit is raised in the main thread (the task of the ``async with`` is cancelled, and its block ends with
      SystemExit), so that ``with`` and ``finally`` blocks release what is held. With ``interrupt=False`` only the
      event is set, and SystemExit comes at the end of the block: finish the piece of work, and leave.
    - The process ends when the main thread and all others that are no daemons have ended. The sessions of all clients
      that locks were made with are closed then, if they are still open.
    - ``grace`` seconds after the signal, or at a second signal, they are closed in any case. That gives all locks back
      at once, and grants that are still in use are lost. One second later the process ends, even where threads are
      still at work. (With ``interrupt=False``, SystemExit is raised in between.) Where no server answers, it takes
      one second more: let grace + 2 be less than what a supervisor waits before it sends SIGKILL. The default fits
      Docker's 10 seconds.

    ``signals`` is SIGTERM if nothing is given; SIGINT and SIGHUP make sense, too. One that is ignored (``nohup``) stays
    ignored. One that a host handles already with a Python function (gunicorn, Celery, uvicorn) is passed on to it, as
    often as it comes, after the event was set; nothing is raised then, and the process is not ended, for that is the
    host's business; the sessions are closed at the end of the grace. The handlers that were there before are restored
    when the block is left without a signal. In a forked child the signals do what they did before.

    The exit status is 128 + the signal's number, 143 for SIGTERM, as a shell reports it. The process does not kill
    itself with the signal: that would skip Python's own clean-up, and does nothing in a container's first process.

    Not guaranteed: that a main thread inside one long call of an extension module hears the signal before the call
    returns. Python runs handlers in the main thread only: let such work run in other threads.

    Raises `RuntimeError` when entered in another thread than the main one, or where a signal is handled by the program
    that Python is embedded in.
    """
    if not grace >= 0:  # nor NaN
        raise ValueError(f"grace is in seconds, 0 or more, not {grace}")
    return ExitOnSignals(signals or (signal.SIGTERM,), grace, interrupt)


class _State(Enum):
    LISTENING = auto()
    TOLD = auto()  # a signal has come; the main thread may go on
    UNWINDING = auto()  # it was interrupted, or has left the block by itself
    HURRIED = auto()  # another signal has come


class _Word(Enum):
    """What the keeper is told."""

    TOLD = auto()
    NOT_NOW = auto()
    HURRY = auto()
    LEFT = auto()


class ExitOnSignals:
    """What `exit_on_signals` returns; to be entered once."""

    def __init__(self, signals: tuple[signal.Signals, ...], grace: float, interrupt: bool) -> None:
        self._signals = signals
        self._grace = min(grace, threading.TIMEOUT_MAX / 2)
        self._interrupts = interrupt
        self._state = _State.LISTENING
        self._signal = signals[0]
        self._hosted = False  # a host handles the signal, and decides when the process ends
        self._poked = False  # the signal comes from the keeper
        self._pid = os.getpid()
        self._before: dict[signal.Signals, Any] = {}
        self._stopping = threading.Event()
        # The one thing a handler may use: it can have interrupted the very thread that has the lock of an event.
        self._words: SimpleQueue[_Word] = SimpleQueue()
        self._task: _Task | None = None

    # --- the main thread ----------------------------------------------------------------------------------------

    def __enter__(self) -> threading.Event:
        self._install()
        return self._stopping

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._must_end() and error is None:
            raise SystemExit(self._status)

    async def __aenter__(self) -> asyncio.Event:
        self._task = _Task()
        try:
            self._install()
        except BaseException:
            self._task.close()
            raise
        return self._task.stopping

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.close()
        if self._must_end() and (error is None or self._task.was_cancelled(error)):
            raise SystemExit(self._status)

    @property
    def _status(self) -> int:
        return 128 + self._signal

    def _install(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "exit_on_signals() was entered in another thread, but Python sets and runs signal handlers in the main "
                "thread only: enter it there, and pass its event to the threads"
            )
        for signum in self._signals:
            self._before[signum] = signal.getsignal(signum)
            if self._before[signum] is None:
                raise RuntimeError(f"{signum.name} is handled by the program that Python is embedded in")
        try:
            for signum, before in self._before.items():
                if before is not signal.SIG_IGN:
                    signal.signal(signum, self._handle)
            self._closer = Closer()
            threading.Thread(target=self._keep, name="zkfence-keeper", daemon=True).start()
        except BaseException:  # SIGKILL, say, which nobody can handle: the block is not entered, and so never left
            for signum, before in self._before.items():
                if signal.getsignal(signum) == self._handle:
                    signal.signal(signum, before)
            raise

    def _must_end(self) -> bool:
        """The block is being left; tells whether the process has to end."""
        if self._state is _State.LISTENING or self._hosted:
            for signum, before in self._before.items():
                signal.signal(signum, before)
        if self._state is _State.LISTENING or self._hosted:  # still: no signal can come any more
            self._words.put(_Word.LEFT)
            return False
        if self._state is _State.TOLD:
            self._state = _State.UNWINDING
        return True

    def _close_at_exit(self) -> None:
        if os.getpid() == self._pid:
            self._closer.close_sessions(within=_CLOSING)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        before = self._before[signal.Signals(signum)]
        if os.getpid() != self._pid:
            _do_as_before(signum, before, frame)
            return
        poked, self._poked = self._poked, False
        if callable(before) and before is not signal.default_int_handler:
            self._hosted = True
            self._hear(signum)
            before(signum, frame)
        elif self._state is _State.LISTENING:
            self._hear(signum)
            if self._interrupts:
                self._interrupt(frame)
        elif poked:
            self._interrupt(frame)
        elif self._state is not _State.HURRIED:
            self._state = _State.HURRIED
            self._words.put(_Word.HURRY)
        else:
            os._exit(self._status)

    def _hear(self, signum: int) -> None:
        if self._state is _State.LISTENING:
            self._state = _State.TOLD
            self._signal = signal.Signals(signum)
            self._words.put(_Word.TOLD)
            if not self._hosted:
                atexit.register(self._close_at_exit)  # so late that it is called before kazoo stops its threads
            if self._task is not None:
                self._task.tell()

    def _interrupt(self, frame: FrameType | None) -> None:
        """End the block by an exception, at once or soon, unless it is being left already."""
        if self._state is not _State.TOLD:
            return
        if _swallows(frame) and self._task is None:
            self._words.put(_Word.NOT_NOW)
            return
        self._state = _State.UNWINDING
        if self._task is None:
            raise SystemExit(self._status)
        self._task.cancel()

    # --- the keeper's thread ------------------------------------------------------------------------------------

    def _keep(self) -> None:
        """Keep the grace, whatever the other threads do."""
        if self._words.get() is _Word.LEFT:
            self._closer.dismiss()
            return
        self._stopping.set()
        _log.info("%s: this process has %g s to finish its work", self._signal.name, self._grace)
        end = self._await_end(time.monotonic() + self._grace)
        if end is _Word.LEFT:
            self._closer.dismiss()
            return
        self._closer.close_sessions(within=_CLOSING)
        _log.warning(
            "%s: %s while work was still going on: the ZooKeeper sessions were closed, and all locks given back",
            self._signal.name,
            "it came again" if end is _Word.HURRY else f"the grace of {self._grace:g} s was over",
        )
        if self._hosted:
            return
        self._poke()
        time.sleep(_UNWINDING)
        os._exit(self._status)

    def _await_end(self, deadline: float) -> _Word | None:
        """Wait for `HURRY` or `LEFT`, until the deadline: then ``None``."""
        while True:
            try:
                word = self._words.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                return None
            if word is not _Word.NOT_NOW:
                return word
            time.sleep(_PAUSE)
            self._poke()

    def _poke(self) -> None:
        """Let the handler interrupt the main thread, if that has not been done."""
        main = threading.main_thread().ident
        if self._state is _State.TOLD and main is not None:
            self._poked = True
            signal.pthread_kill(main, self._signal)


class _Task:
    """The task that is in the ``async with`` block, for a signal handler, which may not touch it directly."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._cancelled = False
        self._ticking = self._loop.call_soon(self._tick)
        self.stopping = asyncio.Event()

    def _tick(self) -> None:
        """Keep the loop from sleeping for long: Python runs no handler for a signal that comes just before the loop
        falls asleep, until it wakes up."""
        self._ticking = self._loop.call_later(_TICK, self._tick)

    def close(self) -> None:
        self._ticking.cancel()

    def tell(self) -> None:
        self._soon(self.stopping.set)

    def cancel(self) -> None:
        self._cancelled = True
        self._soon(self._task.cancel)

    def was_cancelled(self, error: BaseException) -> bool:
        """Whether ``error`` is our cancellation, arrived."""
        if not (self._cancelled and isinstance(error, asyncio.CancelledError)):
            return False
        self._task.uncancel()
        return True

    def _soon(self, call: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(call)


def _swallows(frame: FrameType | None) -> bool:
    """Whether what is raised here would not get through: kazoo, while it wakes its connection, takes every exception
    for a closed connection."""
    while frame is not None:
        if frame.f_code is KazooClient._call.__code__:
            return True
        frame = frame.f_back
    return False


def _do_as_before(signum: int, before: Any, frame: FrameType | None) -> None:
    """What a forked child does: it is not the process that this was asked for."""
    if callable(before):
        before(signum, frame)
    else:
        signal.signal(signum, before)
        signal.raise_signal(signum)
