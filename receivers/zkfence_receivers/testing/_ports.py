"""Free ports on the loopback interface."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from ._errors import ServerFailed

LOOPBACK: Final = "127.0.0.1"
_LOWEST: Final = 10_000
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ATTEMPTS: Final = 5

T = TypeVar("T")


def free_ports(count: int) -> list[int]:
    """Different ports on 127.0.0.1 that nobody had a moment ago. Whoever binds one has to expect that it is gone.

    They lie below the range that the system takes for outgoing connections, where there is room. A server that is
    down must get its port back at its restart, and a client that keeps trying a port of that range sooner or later
    is given the very same one as its own end: it connects to itself, and the port is taken.
    """
    with contextlib.ExitStack() as probes:
        return [probes.enter_context(_bound_socket()).getsockname()[1] for _ in range(count)]


def with_free_ports(start: Callable[[], T]) -> T:
    """Call ``start``, which takes ports from `free_ports`; call it again when one of them was taken meanwhile."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return start()
        except ServerFailed as failure:
            if not failure.port_was_taken:
                raise
    return start()


def _bound_socket() -> socket.socket:
    highest = _first_ephemeral() - 1
    for _ in range(200 if highest > 2 * _LOWEST else 0):
        with contextlib.suppress(OSError):
            return _bind(random.randint(_LOWEST, highest))  # noqa: S311
    return _bind(0)


def _bind(port: int) -> socket.socket:
    probe = socket.socket()
    try:
        probe.bind((LOOPBACK, port))
    except OSError:
        probe.close()
        raise
    return probe


def _first_ephemeral() -> int:
    try:
        return int(_EPHEMERAL.read_text().split()[0])
    except OSError:
        return 32768  # macOS begins at 49152
