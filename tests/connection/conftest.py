"""What the tests of the connection share: clients on a real server, and what may stand between the two."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

import zkfence
from zkfence.testing import LocalEnsemble

from ..tools.waiting import eventually


@pytest.fixture(name="eventually")
def eventually_fixture() -> Callable[..., None]:
    return eventually


@pytest.fixture
def connect(zkfence_ensemble: LocalEnsemble) -> Iterator[Callable[..., zkfence.Client]]:
    """Clients on the real server, or on other ``hosts``, ended with the test."""
    with ExitStack() as stack:
        yield lambda hosts="", **options: stack.enter_context(
            zkfence.connect(hosts or zkfence_ensemble.hosts, **options)
        )


@pytest.fixture
def zk(connect: Callable[..., zkfence.Client]) -> zkfence.Client:
    return connect()


@pytest.fixture(scope="session")
def server_to_hurt() -> Iterator[LocalEnsemble]:
    with LocalEnsemble(durable=False) as ensemble:
        yield ensemble


@pytest.fixture
def restless(server_to_hurt: LocalEnsemble) -> Iterator[LocalEnsemble]:
    """A server that the test may pause and kill."""
    (server,) = server_to_hurt.nodes
    if not server.running:
        server.restart()
        server.wait_until_serving()
    yield server_to_hurt
    if server.running:
        server.resume()


class Proxy:
    """Stands between clients and a server, and spoils what the server says."""

    def __init__(self, port: int, *, family: socket.AddressFamily = socket.AF_INET) -> None:
        self.piece: int | None = None  # deliver so many bytes at a time, each in a packet of its own
        self.cut_after: int | None = None  # end the connection after so many more bytes of the server
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0), family=family)
        self.port: int = self._listener.getsockname()[1]
        self._over = False
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        self._over = True
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def _accept(self) -> None:
        self._listener.settimeout(0.02)
        while not self._over:
            with contextlib.suppress(TimeoutError):
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._threads.append(threading.Thread(target=self._serve, args=(client,)))
                self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._target) as server:
            selector = selectors.DefaultSelector()
            with selector:
                selector.register(client, selectors.EVENT_READ)
                selector.register(server, selectors.EVENT_READ)
                while not self._over:
                    for key, _ in selector.select(0.02):
                        data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                        if not data:
                            return
                        if key.fileobj is client:
                            server.sendall(data)
                        elif not self._deliver(client, data):
                            return

    def _deliver(self, client: socket.socket, data: bytes) -> bool:
        if self.cut_after is not None:
            if len(data) >= self.cut_after:
                client.sendall(data[: self.cut_after])
                self.cut_after = None
                return False
            self.cut_after -= len(data)
        for start in range(0, len(data), self.piece or len(data)):
            client.sendall(data[start : start + (self.piece or len(data))])
        return True


@pytest.fixture
def proxy(zkfence_ensemble: LocalEnsemble) -> Iterator[Proxy]:
    with contextlib.closing(Proxy(zkfence_ensemble.nodes[0].port)) as proxy:
        yield proxy


@pytest.fixture
def proxy6(zkfence_ensemble: LocalEnsemble) -> Iterator[Proxy]:
    """One that listens on ::1."""
    with contextlib.closing(Proxy(zkfence_ensemble.nodes[0].port, family=socket.AF_INET6)) as proxy:
        yield proxy


@pytest.fixture
def blackhole() -> Iterator[str]:
    """An address that does not even refuse: its queue of connections is full, and nobody takes them."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def mute() -> Iterator[str]:
    """A server that takes connections and says nothing, as one that is hung."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
