"""The connection string, checked before anything happens."""

from __future__ import annotations

from urllib.parse import urlsplit

_FORM = "it is host:port,host:port/chroot, an IPv6 address in brackets"


def check_hosts(hosts: str) -> None:
    """Raise ValueError, or TypeError, for a connection string that cannot mean anything."""
    if not isinstance(hosts, str):
        raise TypeError(f"hosts is a text such as 'zk1:2181,zk2:2181', not {hosts!r}")
    servers, _, chroot = hosts.partition("/")
    if not servers.strip():
        raise ValueError(f"hosts={hosts!r} names no server: {_FORM}")
    for server in servers.split(","):
        _check_server(server.strip(), hosts)
    if any(part in (".", "..") for part in chroot.split("/")):
        raise ValueError(f"hosts={hosts!r}: a chroot has no relative parts")


def _check_server(server: str, hosts: str) -> None:
    try:
        place = urlsplit(f"zk://{server}")
        name, port = place.hostname, place.port
    except ValueError as error:
        raise ValueError(f"hosts={hosts!r}: {server!r} is no server ({error}); {_FORM}") from None
    if not name or "@" in server or place.path or place.query or place.fragment or any(map(str.isspace, server)):
        raise ValueError(f"hosts={hosts!r}: {server!r} is no server; {_FORM}")
    if port == 0 or place.netloc.endswith(":"):
        raise ValueError(f"hosts={hosts!r}: {server!r} has no port that a server can have")
