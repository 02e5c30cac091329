"""What can go wrong with a local server.

::

    ZkfenceError
    └── LocalServerError
        ├── ServerNotFound   the machine has no such server; the message says what to install
        └── ServerFailed     it did not start, ended by itself or did not answer in time; has the log's tail
"""

from __future__ import annotations

from zkfence_receivers.words import ZkfenceError


class LocalServerError(ZkfenceError):
    """The root of what the local servers raise."""


class ServerNotFound(LocalServerError):
    """The machine has no such server (or no Java). The message says what was looked for and what to install."""


class ServerFailed(LocalServerError):
    """A server did not start, ended by itself, or did not answer in time. ``log`` is the end of its log."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(f"{message}\n--- the end of its log:\n{log}" if log else message)
        self.log = log

    @property
    def port_was_taken(self) -> bool:
        """Whether somebody else had one of its ports: a start with other ports may succeed."""
        return "Address already in use" in self.log
