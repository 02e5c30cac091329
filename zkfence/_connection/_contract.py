"""What `Connection` relies on in kazoo, beyond its public face."""

from __future__ import annotations

import inspect
from typing import Final

import kazoo
from kazoo.client import KazooClient
from kazoo.protocol import connection, serialization

# Read line by line, and tested. Of others it is unknown what their loop does, whatever their names are.
KNOWN_VERSIONS: Final = ("2.10", "2.11")

_PARAMETERS: Final[dict[str, tuple[str, ...]]] = {
    "_connect": ("host", "hostip", "port"),
    "_connect_attempt": ("host", "hostip", "port", "retry"),
    "_invoke": ("timeout", "request", "xid"),
    "_read_response": ("header", "buffer", "offset"),
    "_read_socket": ("read_timeout",),
    "_read_watch_event": ("buffer", "offset"),
    "_send_ping": ("connect_timeout",),
    "close": (),
    "start": (),
    "stop": ("timeout",),
    "zk_loop": (),
}
_CONSTANTS: Final = (
    "AUTH_XID",
    "CLOSE_RESPONSE",
    "PING_XID",
    "WATCH_XID",
    "_CONNECTION_DROP",
    "_SESSION_EXPIRED",
)
_OF_CONNECTION: Final = ("_connection_routine", "_read_sock", "_socket", "_write_sock", "_xid", "ping_outstanding")
_OF_CLIENT: Final = ("_live", "_pending", "_queue", "_session_callback", "_state", "_stopped")


def breaches(client: KazooClient) -> list[str]:
    """What is not as it has to be, in the kazoo that is installed; nothing: `Connection` may be used."""
    found = []
    version = str(kazoo.__version__)
    if not any(version == known or version.startswith(f"{known}.") for known in KNOWN_VERSIONS):
        found.append(f"version {version} is none of {', '.join(KNOWN_VERSIONS)}")
    for name, parameters in _PARAMETERS.items():
        method = getattr(connection.ConnectionHandler, name, None)
        if method is None or tuple(inspect.signature(method).parameters)[1:] != parameters:
            found.append(f"ConnectionHandler.{name}({', '.join(parameters)})")
    found += [f"connection.{name}" for name in _CONSTANTS if not hasattr(connection, name)]
    if getattr(serialization.ReplyHeader, "_fields", ()) != ("xid", "zxid", "err"):
        found.append("ReplyHeader(xid, zxid, err)")
    found += [f"ConnectionHandler().{name}" for name in _OF_CONNECTION if not hasattr(client._connection, name)]
    found += [f"KazooClient().{name}" for name in _OF_CLIENT if not hasattr(client, name)]
    return found
