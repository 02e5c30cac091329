"""Handler: kazoo's handler for threads, with cheap waits, quick endings and a TLS that checks."""

from __future__ import annotations

import atexit
import logging
import math
import select
import ssl
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import Callback

from ._channel import Channel
from ._dialing import NAP, dial
from ._doorbell import Doorbell
from ._ending import Ending
from ._quick import is_quick
from ._result import Result

_log: Final = logging.getLogger("zkfence")
_DIAL_TIMEOUT: Final = 2.0  # where kazoo names none: when it looks for a server that can write
_JOIN_TIMEOUT: Final = 1.0  # a callback that blocks does not keep a client from being stopped


class Handler(SequentialThreadingHandler):
    """Kazoo's handler for threads, with cheap waits, quick endings and a TLS that checks.

    It is all that kazoo's *public* extension point can do, and enough for any version of kazoo. One handler serves one
    client.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self.ending: Final = Ending()
        self._tls = tls
        self._names: dict[tuple[str, int], str] = {}

    def async_result(self) -> Result:
        return Result(self)

    def create_socket_pair(self) -> tuple[Doorbell, Doorbell]:
        bell = Doorbell()
        return bell, bell

    def expect(self, address: tuple[str, int], name: str) -> None:
        """The server at ``address`` has to prove that it is ``name``. Kazoo tells `create_connection` no name in 2.10,
        and a wrong one for four-letter words in 2.11."""
        self._names[address] = name

    def create_connection(self, address: tuple[str, int], timeout: float | None = None, **_: object) -> Channel:
        """A connection to ``address``. What kazoo says about TLS is not needed: the context knows it all."""
        address = (address[0], address[1])
        name = self._names.get(address, address[0])
        return Channel(dial(address, name, _DIAL_TIMEOUT if timeout is None else timeout, self._tls, self.ending))

    def select(
        self, rlist: Sequence[Any], wlist: Sequence[Any], xlist: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As `select.select`, without a new epoll object for each call. Raises OSError once the client has been
        stopped and its time is over."""
        known = all(isinstance(thing, Channel | Doorbell) for thing in (*rlist, *wlist))
        if not known or xlist or not (rlist or wlist):
            readable, writable, exceptional = super().select(rlist, wlist, xlist, timeout)
            return readable, writable, exceptional
        if not rlist and all(channel.has_room for channel in wlist):  # before each send
            return [], list(wlist), []
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        bells = [thing for thing in rlist if isinstance(thing, Doorbell)]
        while True:
            for thing in (*rlist, *wlist):
                if isinstance(thing, Channel):
                    thing.flush()
            # Only a bell wakes; without one, every now and then look whether the client was stopped.
            wait = deadline - time.monotonic() if bells else min(deadline - time.monotonic(), NAP)
            ready = self._poll(rlist, wlist, bells, max(self.ending.within(min(wait, 3600.0)), 0))
            if ready[0] or ready[1] or time.monotonic() >= deadline:
                return ready

    def _poll(
        self, rlist: Sequence[Any], wlist: Sequence[Any], bells: Sequence[Doorbell], timeout: float
    ) -> tuple[list[Any], list[Any], list[Any]]:
        poller = select.poll()
        for thing in {id(thing): thing for thing in (*rlist, *wlist)}.values():
            poller.register(thing, thing.wants if isinstance(thing, Channel) else select.POLLIN)
        at_hand = any(thing.at_hand for thing in rlist)
        sleepy = [bell.doze() for bell in bells]  # of all of them
        events: dict[int, int] = {}
        try:
            events.update(poller.poll(0 if at_hand or not all(sleepy) else math.ceil(timeout * 1000)))
        finally:
            for bell in bells:
                bell.rouse(rung=bell.fileno() in events)
        readable = [thing for thing in rlist if thing.at_hand or (thing not in bells and thing.fileno() in events)]
        return readable, [channel for channel in wlist if channel.has_room], []

    def dispatch_callback(self, callback: Callback) -> None:
        """Kazoo has an event for a watcher; nobody waits for a thread to be told of it that need not."""
        if not is_quick(callback.func):
            super().dispatch_callback(callback)
            return
        try:
            callback.func(*callback.args)
        except Exception:
            _log.exception("a watcher failed")

    def start(self) -> None:
        self.ending.revoke()
        super().start()
        atexit.unregister(self.stop)  # kazoo's hook would wait for any callback that blocks; see _farewell

    def stop(self) -> None:
        """Stop the threads that run callbacks. One that is in the middle of a callback may go on for a while."""
        if self.running:
            inside = threading.current_thread() in self._workers
            stopping = self.spawn(super().stop)
            if not inside:
                stopping.join(_JOIN_TIMEOUT)

    def forget(self) -> None:
        """In a forked child: the threads are the parent's, and a lock may be held by one of them for ever."""
        self.__init__(self._tls)  # type: ignore[misc]  # a fresh one, which the client already has
