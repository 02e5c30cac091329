"""Quick callbacks: those that never block, and need no thread of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])


def quick(callback: F) -> F:
    """Say that a watch callback never blocks: our handler calls it on the connection's thread, before any later answer
    is told. (Kazoo's own handler goes on calling it on its callback thread.)"""
    callback.is_quick = True  # type: ignore[attr-defined]
    return callback


def is_quick(callback: Callable[..., object]) -> bool:
    return getattr(callback, "is_quick", False)
