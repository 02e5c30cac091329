"""Owner: who acquires, so that one who would wait for itself is told."""

from __future__ import annotations

import threading

from kazoo.interfaces import IHandler


def is_green(handler: IHandler) -> bool:
    """Whether the client's threads are greenlets."""
    name = getattr(handler, "name", "")
    return "gevent" in name or "eventlet" in name


def current_owner(handler: IHandler) -> object:
    """The present thread; with a handler of gevent or eventlet, the present greenlet.

    It is the object and not its number, which the next thread may have again.
    """
    if is_green(handler):
        from greenlet import getcurrent

        return getcurrent()
    return threading.current_thread()
