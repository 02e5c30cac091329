"""Dialling: a connection to a server, made in bounded time."""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import Final

from ._ending import Ending

# How long to sleep without a look at whether the client was stopped.
NAP: Final = 0.1


def dial(
    address: tuple[str, int], name: str, timeout: float, tls: ssl.SSLContext | None, ending: Ending
) -> socket.socket:
    """A connected socket; with ``tls`` one whose server has proved to be ``name``.

    Everything together takes ``timeout`` seconds at most, and less when the client is stopped; only looking up a host
    name is the system's affair. Raises OSError.
    """
    deadline = time.monotonic() + timeout
    failure: OSError | None = None
    for family, kind, protocol, _, place in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)
            _connect(sock, place, deadline, ending)
            if tls is not None:
                sock = _secure(sock, tls, name, deadline, ending)
            sock.settimeout(timeout)
            return sock
        except OSError as error:
            sock.close()
            failure = error
            ending.within(timeout)
        except BaseException:
            sock.close()
            raise
    assert failure is not None  # getaddrinfo knows an address, or raises
    raise failure


def _connect(sock: socket.socket, place: object, deadline: float, ending: Ending) -> None:
    error = sock.connect_ex(place)  # type: ignore[arg-type]  # as getaddrinfo says it
    if error == errno.EINPROGRESS:
        _wait(sock, select.POLLOUT, deadline, ending)
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))


def _secure(sock: socket.socket, tls: ssl.SSLContext, name: str, deadline: float, ending: Ending) -> ssl.SSLSocket:
    secured = tls.wrap_socket(sock, server_hostname=name, do_handshake_on_connect=False)
    try:
        _repeat(secured.do_handshake, secured, deadline, ending)
    except BaseException:
        secured.close()
        raise
    return secured


def _repeat(step: Callable[[], None], sock: ssl.SSLSocket, deadline: float, ending: Ending) -> None:
    while True:
        try:
            step()
            return
        except ssl.SSLWantReadError:
            _wait(sock, select.POLLIN, deadline, ending)
        except ssl.SSLWantWriteError:
            _wait(sock, select.POLLOUT, deadline, ending)


def _wait(sock: socket.socket, event: int, deadline: float, ending: Ending) -> None:
    poller = select.poll()
    poller.register(sock, event)
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        if poller.poll(ending.within(min(left, NAP)) * 1000):
            return
