"""Owner: who acquires, so that one who would wait for itself is told."""

from __future__ import annotations

import threading

from kazoo.interfaces import IHandler


def current_owner(handler: IHandler) -> object:
    """The present thread; with a handler of gevent or eventlet, the present greenlet.

    It is the object and not its number, which the next thread may have again.
    """
    name = getattr(handler, "name", "")
    if "gevent" in name or "eventlet" in name:
        from greenlet import getcurrent

        return getcurrent()
    return threading.current_thread()
