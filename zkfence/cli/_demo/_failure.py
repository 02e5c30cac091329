"""DemoFailed: the story could not be told to its end."""

from __future__ import annotations

from zkfence_receivers.words import ZkfenceError


class DemoFailed(ZkfenceError):
    """Something did not come in time, or a worker failed. Says nothing about fencing: no verdict was reached."""
