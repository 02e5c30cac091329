"""Pending: something that is awaited, or entered with ``async with``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Pending(Coroutine[Any, Any, T], Generic[T]):
    """A coroutine whose result can be entered directly: ``async with lock.acquire(timeout=5.0) as grant``."""

    __slots__ = ("__name__", "__qualname__", "_coroutine", "_leave", "_result")

    def __init__(self, coroutine: Coroutine[Any, Any, T], leave: Callable[[T], Awaitable[object]]) -> None:
        self.__name__ = getattr(coroutine, "__name__", type(self).__name__)  # for the repr of its task
        self.__qualname__ = getattr(coroutine, "__qualname__", self.__name__)
        self._coroutine = coroutine
        self._leave = leave
        self._result: T

    async def __aenter__(self) -> T:
        self._result = await self._coroutine
        return self._result

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(self._result)

    # A coroutine, so that asyncio.create_task and a TaskGroup take it.

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()
