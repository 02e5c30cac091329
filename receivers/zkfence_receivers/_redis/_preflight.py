"""Preflight: whether a server keeps what it acknowledges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from redis.exceptions import ResponseError

from ._delivery import Delivery

if TYPE_CHECKING:
    from redis.connection import ConnectionPool

# What an acknowledged mark needs to survive a crash of the machine, and what is lost otherwise.
_REQUIRED: Final = {
    "appendonly": ("yes", "marks are lost when the server ends"),
    "appendfsync": (
        "always",
        "marks that were acknowledged a moment ago are lost with the machine",
    ),
    "no-appendfsync-on-rewrite": ("no", "nothing is made durable while the append-only file is rewritten"),
    "maxmemory-policy": ("noeviction", "a mark can be evicted when memory is short, and then nobody is stale any more"),
}
_PATTERNS: Final = ("*append*", "maxmemory-policy")


class Findings:
    """``problems``: sentences on what is known to be wrong. ``unknown``: settings that could not be read."""

    def __init__(self, settings: Mapping[str, str], info: Mapping[str, str]) -> None:
        self.problems = [
            f"{name} is {settings[name]!r}: {loss}. CONFIG SET {name} {value} mends the running server, "
            f"the line `{name} {value}` in redis.conf the next one"
            for name, (value, loss) in _REQUIRED.items()
            if settings.get(name, value) != value
        ]
        self.unknown = [name for name in _REQUIRED if name not in settings]
        if "role" not in info:
            self.unknown.append("role")
        elif info["role"] != "master":
            self.problems.append(f"its role is {info['role']}: connect to the master")
        # While a server's first file is being made, nothing of it counts yet: a crash loses everything. (INFO does not
        # show it where the file was switched off and on again.)
        making = "1" in (info.get("aof_rewrite_in_progress"), info.get("aof_rewrite_scheduled"))
        if making and info.get("aof_base_size") == "0":
            self.problems.append(
                "its append-only file is still being made: wait until INFO persistence says aof_rewrite_in_progress:0"
            )


def look(pool: ConnectionPool) -> Findings:
    """Ask the server for its settings. Raises redis-py's connection errors."""
    delivery = Delivery(pool)
    info = _info(delivery)
    settings: dict[str, str] = {}
    # INFO shows two of them even where CONFIG is forbidden.
    if "aof_enabled" in info:
        settings["appendonly"] = "yes" if info["aof_enabled"] == "1" else "no"
    if "maxmemory_policy" in info:
        settings["maxmemory-policy"] = info["maxmemory_policy"]
    for pattern in _PATTERNS:
        settings |= _config(delivery, pattern)
    return Findings(settings, info)


def _info(delivery: Delivery) -> dict[str, str]:
    try:
        text = _text(delivery.ask("INFO"))
    except ResponseError:  # forbidden or renamed, as managed services do
        return {}
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def _config(delivery: Delivery, pattern: str) -> dict[str, str]:
    try:
        answer = delivery.ask("CONFIG", "GET", pattern)
    except ResponseError:
        return {}
    if isinstance(answer, dict):  # RESP3
        return {_text(name): _text(value) for name, value in answer.items()}
    assert isinstance(answer, list)
    return {_text(name): _text(value) for name, value in zip(answer[::2], answer[1::2], strict=True)}


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
