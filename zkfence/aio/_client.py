"""connect: a started client, without blocking the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from .. import _client
from .._client import Client
from ._pending import Pending

T = TypeVar("T")


def connect(
    hosts: str, *, session_timeout: float = 10.0, connect_timeout: float = 15.0, **options: Any
) -> Pending[Client]:
    """Connect to an ensemble, as `zkfence.connect` does, in a thread of its own.

    ::

        async with zkfence.aio.connect("zk1:2181,zk2:2181") as zk: ...

        zk = await zkfence.aio.connect("zk1:2181,zk2:2181")
        ...
        await asyncio.to_thread(zk.stop)

    Leaving the ``async with`` block ends the session, and with it every lock that it holds. Options and errors are
    those of `zkfence.connect`. A cancellation leaves no session behind.
    """
    make = partial(_client.connect, hosts, session_timeout=session_timeout, connect_timeout=connect_timeout, **options)
    return Pending(_connect(make), _end)


async def _connect(make: Callable[[], Client]) -> Client:
    connecting = _in_thread(make)
    try:
        return await asyncio.wrap_future(connecting)
    except BaseException:
        connecting.add_done_callback(_end_unwanted)
        raise


async def _end(client: Client) -> None:
    ending = _in_thread(partial(client.__exit__, None, None, None))
    await asyncio.shield(asyncio.wrap_future(ending))


def _end_unwanted(connected: Future[Client]) -> None:
    if not connected.cancelled() and connected.exception() is None:
        # In a thread of its own, for this may be the event loop's.
        threading.Thread(target=connected.result().__exit__, args=(None, None, None)).start()


def _in_thread(function: Callable[[], T]) -> Future[T]:
    """Not in the loop's own executor, for whose threads the end of the loop would wait."""
    executor = ThreadPoolExecutor(1, thread_name_prefix="zkfence-connect")
    try:
        return executor.submit(function)
    finally:
        executor.shutdown(wait=False)
