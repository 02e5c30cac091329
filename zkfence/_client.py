"""connect: a started client that zkfence likes best. Any other started KazooClient works too."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kazoo.exceptions import AuthFailedError, ConnectionLoss, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError

from ._connection._client import Client
from ._connection._ending import Stopped
from ._connection._hosts import check_hosts
from ._connection._tls import File, tls_context
from ._errors import AccessDenied, NotConnected
from ._session import Session

__all__ = ["Client", "connect"]

# kazoo's own pauses grow to a minute: a session of ten seconds would be lost although the servers are back.
_RECONNECT: Final = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}
_LONGEST: Final = 2**31 / 1000 - 1  # seconds; milliseconds are a signed integer of four bytes on the wire

_OTHER_NAMES: Final = {
    "auth_data": "auth",
    "sasl_options": "sasl",
    "timeout": "session_timeout",
    "use_ssl": "tls",
    "verify_certs": "verify",
}


def connect(
    hosts: str,
    *,
    session_timeout: float = 10.0,
    connect_timeout: float = 15.0,
    auth: Sequence[tuple[str, str]] = (),
    sasl: Mapping[str, str] | None = None,
    tls: bool = False,
    ca: File | None = None,
    certfile: File | None = None,
    keyfile: File | None = None,
    keyfile_password: str | None = None,
    check_hostname: bool = True,
    verify: bool = True,
    read_only: bool = False,
    **options: Any,
) -> Client:
    """Connect to an ensemble.

    ``hosts`` is ZooKeeper's connection string, ``host:port,host:port/chroot``. ``session_timeout`` (seconds) is how
    long a worker may be silent before it loses its locks; the servers clamp it to what they allow, and the client's
    ``negotiated_timeout`` is what they agreed to.

    ``auth`` are ZooKeeper's credentials, such as ``[("digest", "user:secret")]``; ``sasl`` the options of pure-sasl,
    as KazooClient takes them. Neither is ever logged.

    ``tls``: talk TLS (1.2 or later), to servers whose certificate is for the host name that ``hosts`` says
    (``check_hostname``) and signed by ``ca``, a PEM file or a directory, or else by an authority that the system
    trusts. ``certfile`` and ``keyfile`` (PEM, perhaps one file) are the client's own certificate. ``verify=False``
    trusts everybody.

    ``read_only``: be content with a server that has lost its quorum, which answers reads. ``options`` go to
    KazooClient as they are: ``default_acl``, ``randomize_hosts``, ``connection_retry``, ``logger`` and so on.

    Raises ValueError or TypeError for what cannot be meant, before anything happens; `NotConnected`, with the cause, if
    no server has answered within ``connect_timeout`` seconds; `AccessDenied` if they refuse the credentials.
    """
    for name in options:
        if name in _OTHER_NAMES:
            raise TypeError(f"connect() calls it {_OTHER_NAMES[name]}=, not {name}=")
    if "handler" in options:
        raise TypeError("connect() brings its own handler; for another one, start a KazooClient of your own")
    check_hosts(hosts)
    _check_seconds("session_timeout", session_timeout, _LONGEST)
    _check_seconds("connect_timeout", connect_timeout, threading.TIMEOUT_MAX)
    secure = {"ca": ca, "certfile": certfile, "keyfile": keyfile, "keyfile_password": keyfile_password}
    if not tls and any(value is not None for value in secure.values()):
        raise ValueError(f"{', '.join(name for name, value in secure.items() if value is not None)}: say tls=True too")
    client = Client(
        hosts,
        session_timeout,
        tls=tls_context(
            ca=ca,
            certfile=certfile,
            keyfile=keyfile,
            keyfile_password=keyfile_password,
            check_hostname=check_hostname,
            verify=verify,
        )
        if tls
        else None,
        auth_data=_checked_auth(auth),
        sasl_options=dict(sasl) if sasl is not None else None,
        read_only=read_only,
        **{"connection_retry": _RECONNECT, **options},
    )
    Session.of(client)  # which sees when the session begins
    try:
        client.start(timeout=connect_timeout)
    except (KazooTimeoutError, AuthFailedError, ConnectionLoss, SessionExpiredError) as error:
        failure = client._connection.last_failure
        cause = failure[1] if failure else error
        if isinstance(error, AuthFailedError) or isinstance(cause, AuthFailedError):
            raise AccessDenied("ZooKeeper refuses the credentials of this client: check auth= or sasl=") from error
        raise NotConnected(
            f"no ZooKeeper server answered at {hosts} within {connect_timeout:g} s{_told(failure)}"
        ) from cause
    return client


def _told(failure: tuple[str, Exception] | None) -> str:
    """The last failure, in words."""
    if failure is None:
        return ""
    server, error = failure
    why: BaseException = error.__context__ if isinstance(error.__context__, OSError) else error
    if isinstance(why, KazooTimeoutError | Stopped):
        return f". The last try: {server} said nothing; does it hang, is a firewall there, or does it want TLS?"
    return f". The last try: {server}: {why}"


def _check_seconds(name: str, value: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is in seconds, a number, not {value!r}")
    if not (math.isfinite(value) and 0 < value <= most):
        raise ValueError(f"{name} is in seconds, more than 0 and finite, not {value!r}")


def _checked_auth(auth: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    given: object = auth
    checked = []
    for pair in given if isinstance(given, Iterable) else [given]:
        match pair:
            case (str() as scheme, str() as credential):
                checked.append((scheme, credential))
            case _:  # what it is instead is not told: it may be a secret
                raise TypeError('auth is a list of pairs of texts, such as [("digest", "user:secret")]')
    return checked
