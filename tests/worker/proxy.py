"""Proxy: a network between clients and a ZooKeeper server that fails when a test says so."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Self

CREATE: Final = 1
DELETE: Final = 2
GET_DATA: Final = 4
SYNC: Final = 9
PING: Final = 11
GET_CHILDREN2: Final = 12
MULTI: Final = 14
CREATE2: Final = 15
CLOSE: Final = -11

_LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Request:
    """A request on its way to the server. ``body`` holds its paths and data as they are."""

    xid: int
    opcode: int
    body: bytes


Chosen = Callable[[Request], bool]


def of(*opcodes: int, naming: str = "") -> Chosen:
    """Chooses requests of these kinds, and of them only those with ``naming`` in them: a path, or data."""
    return lambda request: request.opcode in opcodes and naming.encode() in request.body


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault that waits for its request. It strikes once; ``done`` is set then."""

    chosen: Chosen
    at_reply: bool  # when the server has answered; otherwise before it hears of the request
    cuts: bool
    act: Callable[[], object]
    done: threading.Event = field(default_factory=threading.Event)


class Gate:
    """One direction: lets frames through, or holds them. What is held stays in order; nothing is lost."""

    def __init__(self) -> None:
        self._opened = threading.Condition()
        self._is_open = True

    def hold(self) -> None:
        with self._opened:
            self._is_open = False

    def open(self) -> None:
        with self._opened:
            self._is_open = True
            self._opened.notify_all()

    def look(self) -> None:
        """Make everybody who waits here look again whether it still wants to."""
        with self._opened:
            self._opened.notify_all()

    def pass_through(self, closed: Callable[[], bool]) -> None:
        with self._opened:
            self._opened.wait_for(lambda: self._is_open or closed())


class Proxy:
    """Stands in front of one ZooKeeper server.

    ::

        with Proxy(node.address) as proxy, zkfence.connect(proxy.address) as client:
            strike = proxy.lose_reply(of(CREATE2))  # it will be applied, and the client will not know
            ...
            assert strike.done.is_set()

    As with TCP, a reply may be late, or be lost together with its connection; none is lost alone. Faults concern all
    connections, those that are there and later ones.
    """

    def __init__(self, target: str) -> None:
        """``target`` is the ``host:port`` of the server. It may be changed: later connections go to the new one."""
        self.target = target
        self.to_server = Gate()
        self.to_client = Gate()
        self.requests: Counter[int] = Counter()  # by opcode, as clients sent them
        self.bytes_to_server = 0
        self.bytes_to_client = 0
        self._refusing = False
        self._strikes: list[Strike] = []
        self._links: set[Link] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server((_LOOPBACK, 0))
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.refuse()
        self._listener.shutdown(socket.SHUT_RDWR)  # ends the thread's accept()
        self._accepting.join()
        self._listener.close()
        for link in self._present():
            link.join()

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"{_LOOPBACK}:{self._listener.getsockname()[1]}"

    # --- faults -------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Break every connection. Clients may come back at once."""
        for link in self._present():
            link.cut()

    def refuse(self) -> None:
        """Break every connection, and every new one, until `heal`."""
        with self._lock:
            self._refusing = True
        self.cut()

    def go_deaf(self) -> None:
        """Half-open, until `heal`: connections stay, new ones are accepted, and nothing comes through.

        One direction alone: ``to_server.hold()``, ``to_client.hold()``.
        """
        self.to_server.hold()
        self.to_client.hold()

    def heal(self) -> None:
        """Let everything through again, what was held first."""
        with self._lock:
            self._refusing = False
        self.to_server.open()
        self.to_client.open()

    def lose_reply(self, chosen: Chosen, then: Callable[[], object] = lambda: None) -> Strike:
        """When the server has answered the next chosen request, break the connection in place of handing the reply on.

        ``then`` is called just before, when the client cannot know yet; it must not wait for the client.
        """
        return self._add(Strike(chosen, at_reply=True, cuts=True, act=then))

    def lose_request(self, chosen: Chosen, then: Callable[[], object] = lambda: None) -> Strike:
        """Break the connection in place of handing the next chosen request on. ``then`` as in `lose_reply`."""
        return self._add(Strike(chosen, at_reply=False, cuts=True, act=then))

    def hold_reply(self, chosen: Chosen) -> Strike:
        """Hold the reply to the next chosen request, and whatever the server says after it, until `heal`."""
        return self._add(Strike(chosen, at_reply=True, cuts=False, act=self.to_client.hold))

    def _add(self, strike: Strike) -> Strike:
        with self._lock:
            self._strikes.append(strike)
        return strike

    # --- for the links ------------------------------------------------------------------------------------------

    def request_seen(self, request: Request, size: int) -> Strike | None:
        """Count a request; the fault that has waited for it, if one has."""
        with self._lock:
            self.requests[request.opcode] += 1
            self.bytes_to_server += size
            strike = next((strike for strike in self._strikes if strike.chosen(request)), None)
            if strike is not None:
                self._strikes.remove(strike)
            return strike

    def reply_seen(self, size: int) -> None:
        with self._lock:
            self.bytes_to_client += size

    def ended(self, link: Link) -> None:
        with self._lock:
            self._links.discard(link)

    def _present(self) -> list[Link]:
        with self._lock:
            return list(self._links)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            link = Link(self, client)
            with self._lock:
                self._links.add(link)
                refusing = self._refusing
            if refusing:
                link.cut()
            link.start()


class Link:
    """One client's connection, and the one to the server that goes with it."""

    def __init__(self, proxy: Proxy, client: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = socket.socket()
        self._cut = threading.Event()
        self._awaited: dict[int, Strike] = {}  # faults that wait for the reply with this xid
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def cut(self) -> None:
        """End both connections; may be called from any thread, more than once."""
        self._cut.set()
        for each in (self._client, self._server):
            with contextlib.suppress(OSError):  # not connected, or closed by the other side
                each.shutdown(socket.SHUT_RDWR)
        self._proxy.to_server.look()
        self._proxy.to_client.look()

    def _run(self) -> None:
        with self._client, self._server:
            back = threading.Thread(target=self._pump, args=(self._replies,), daemon=True)
            host, _, port = self._proxy.target.rpartition(":")
            try:
                self._server.connect((host, int(port)))
            except OSError:
                self.cut()
            back.start()
            self._pump(self._requests)
            back.join()
        self._proxy.ended(self)

    def _pump(self, direction: Callable[[], None]) -> None:
        try:
            direction()
        except OSError:
            pass  # the other direction has cut
        finally:
            self.cut()

    def _requests(self) -> None:
        self._pass_on(_frame(self._client), self._server, self._proxy.to_server)  # the session's handshake
        while (frame := _frame(self._client)) and not self._cut.is_set():
            xid, opcode = struct.unpack_from(">ii", frame, 4)
            request = Request(xid, opcode, frame[12:])
            strike = self._proxy.request_seen(request, len(frame))
            if strike is not None and strike.at_reply:
                self._awaited[request.xid] = strike
            elif strike is not None:
                self._strike(strike)
            self._pass_on(frame, self._server, self._proxy.to_server)

    def _replies(self) -> None:
        self._pass_on(_frame(self._server), self._client, self._proxy.to_client)
        while (frame := _frame(self._server)) and not self._cut.is_set():
            self._proxy.reply_seen(len(frame))
            (xid,) = struct.unpack_from(">i", frame, 4)
            if xid in self._awaited:
                self._strike(self._awaited.pop(xid))
            self._pass_on(frame, self._client, self._proxy.to_client)

    def _strike(self, strike: Strike) -> None:
        strike.act()
        strike.done.set()
        if strike.cuts:
            self.cut()

    def _pass_on(self, frame: bytes, to: socket.socket, gate: Gate) -> None:
        gate.pass_through(self._cut.is_set)
        if not self._cut.is_set():
            to.sendall(frame)


def _frame(connection: socket.socket) -> bytes:
    """The next frame with its length in front; empty at the end of the connection."""
    head = _exactly(connection, 4)
    if len(head) < 4:
        return b""
    body = _exactly(connection, int.from_bytes(head))
    return head + body if len(body) == int.from_bytes(head) else b""


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (chunk := connection.recv(size - len(data))):
        data += chunk
    return bytes(data)
