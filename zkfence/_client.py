"""connect: a started client that zkfence likes best. Any other started KazooClient works too."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, Self

from kazoo.client import KazooClient

from ._errors import NotConnected
from ._session import Session

# kazoo's own pauses grow to a minute: a session of ten seconds would be lost although the servers are back.
_RECONNECT: Final = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}


class Client(KazooClient):
    """A KazooClient that is a context manager: leaving it ends the session, and with it every lock that it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.close()


def connect(hosts: str, *, session_timeout: float = 10.0, connect_timeout: float = 15.0, **options: Any) -> Client:
    """Connect to an ensemble.

    ``hosts`` is ZooKeeper's connection string, ``host:port,host:port/chroot``. ``session_timeout`` (seconds) is how
    long a worker may be silent before it loses its locks; the servers clamp it to what they allow. ``options`` go to
    KazooClient as they are: ``use_ssl``, ``ca``, ``auth_data``, ``sasl_options`` and so on.

    Raises `NotConnected` if no server has answered within ``connect_timeout`` seconds.
    """
    options.setdefault("connection_retry", _RECONNECT)
    client = Client(hosts=hosts, timeout=session_timeout, **options)
    Session.of(client)  # which sees when the session begins
    try:
        client.start(timeout=connect_timeout)
    except client.handler.timeout_exception as error:
        raise NotConnected(f"no ZooKeeper server answered at {hosts} within {connect_timeout:g} s") from error
    return client
