"""DiscreetLogger: keeps secrets out of the log."""

from __future__ import annotations

import logging
from typing import Any, Final

from kazoo.protocol.serialization import SASL, Auth, Connect

_HIDDEN: Final = "…"
_HIDDEN_BYTES: Final = b"..."


class DiscreetLogger(logging.LoggerAdapter[logging.Logger]):
    """The logger of a client. Kazoo logs each request whole, credentials and the password of the session among them:
    here they are hidden, at every level."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logger, {})

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if not self.isEnabledFor(level):
            return
        if "passwd" in str(msg):  # the session's, in a line of its own
            return
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # kazoo's line, not this one
        super().log(level, msg, *(_discreet(arg) for arg in args), **kwargs)


def _discreet(value: object) -> object:
    if isinstance(value, Auth):
        return value._replace(auth=_HIDDEN)
    if isinstance(value, Connect):
        return value._replace(passwd=_HIDDEN_BYTES)
    if isinstance(value, SASL):
        return value._replace(challenge=_HIDDEN_BYTES)
    return value
