"""The clock of every deadline here."""

from __future__ import annotations

import time


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# A lease goes on running while the machine sleeps, and so has its clock; Linux's monotonic clock stops.
now = _boottime if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
"""Seconds since some fixed moment, not affected by clock steps; counts suspend where the platform can."""
