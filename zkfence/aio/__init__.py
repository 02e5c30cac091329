"""The locks for asyncio. The protocol is that of `zkfence`'s locks, which threads use, to the letter.

::

    async with zkfence.aio.connect("zk1:2181,zk2:2181,zk3:2181") as zk:
        async with zkfence.aio.FencedLock(zk, "reports/7") as grant:
            report = await asyncio.to_thread(store.claim, "report-7", grant)
            await asyncio.to_thread(report.write, data)

Receivers block, on a file or a socket: call them with `asyncio.to_thread`, so that the event loop goes on meanwhile.
A cancellation does not stop such a call; the receiver's answer is lost then, and the write is made or not. Nothing
wrong can come of it: it carries the token.
"""

from __future__ import annotations

from ._client import connect
from ._grant import Grant
from ._lock import FencedLock, FencedReadLock, FencedSemaphore, FencedWriteLock
from ._pending import Pending

__all__ = ["FencedLock", "FencedReadLock", "FencedSemaphore", "FencedWriteLock", "Grant", "Pending", "connect"]
