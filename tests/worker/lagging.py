"""Lagging: a follower that serves clients and is behind its leader, for as long as a test wants.

A real follower is behind for milliseconds: what the leader has committed waits in its queue, while a client comes
back and has its session confirmed. Here the queue is on the way from the leader.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from zkfence.testing import LocalEnsemble, LocalNode

_LOOPBACK: Final = "127.0.0.1"
# Types of a QuorumPacket: `Leader` in ZooKeeper's sources. Behind a SNAP comes the whole tree, which is no packet.
_PROPOSAL: Final = 2
_PING: Final = 5
_REVALIDATE: Final = 6
_SNAP: Final = 15
_SNAP_END: Final = b"BenWasHere"


@contextmanager
def lagging_follower(ensemble: LocalEnsemble) -> Iterator[tuple[LocalNode, Lag]]:
    """A follower that can be made to lag. Restarts it before and after; its leader has to stay meanwhile."""
    leader = ensemble.leader()
    follower = next(node for node in ensemble.nodes if node is not leader)
    configuration = follower.folder / "zoo.cfg"
    original = configuration.read_text()
    number = leader.name.removeprefix("node-")
    _, quorum_port, election_port = re.findall(rf"^server\.{number}=(.+):(\d+):(\d+)$", original, re.MULTILINE)[0]
    with Lag(int(quorum_port)) as lag:
        line = f"server.{number}={_LOOPBACK}:{lag.port}:{election_port}"
        configuration.write_text(re.sub(rf"^server\.{number}=.+$", line, original, flags=re.MULTILINE))
        follower.restart()
        follower.wait_until_serving()
        yield follower, lag
    configuration.write_text(original)
    follower.restart()
    follower.wait_until_serving()


class Lag:
    """Stands between a follower and its leader, which listens for followers on ``leader_port``."""

    def __init__(self, leader_port: int) -> None:
        self._leader_port = leader_port
        self._sending = threading.Lock()
        self._held: list[bytes] | None = None  # what the follower does not know yet, while it lags
        self._follower: socket.socket | None = None
        self._leader: socket.socket | None = None
        self._listener = socket.create_server((_LOOPBACK, 0))
        self._serving = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Lag:
        self._serving.start()
        return self

    def __exit__(self, *exception: object) -> None:
        for each in (self._listener, self._follower, self._leader):
            _end(each)
        self._serving.join()
        self._listener.close()

    @property
    def port(self) -> int:
        """Where the follower finds its leader."""
        return int(self._listener.getsockname()[1])

    def begin(self) -> None:
        """From now on the follower hears of no change. It stays in the quorum and confirms sessions to clients."""
        with self._sending:
            self._held = []

    def end(self) -> None:
        """The follower catches up."""
        with self._sending:
            assert self._held is not None
            assert self._follower is not None
            self._follower.sendall(b"".join(self._held))
            self._held = None

    def _serve(self) -> None:
        """One connection after the other; a follower has one at a time."""
        while True:
            try:
                self._follower, _ = self._listener.accept()
            except OSError:  # closed
                return
            with self._follower, socket.create_connection((_LOOPBACK, self._leader_port)) as self._leader:
                back = threading.Thread(target=self._to_leader, daemon=True)
                back.start()
                with contextlib.suppress(OSError):
                    self._to_follower(self._leader, self._follower)
                _end(self._leader)
                _end(self._follower)
                back.join()

    def _to_leader(self) -> None:
        assert self._follower is not None
        assert self._leader is not None
        with contextlib.suppress(OSError):
            while data := self._follower.recv(65536):
                self._leader.sendall(data)
        _end(self._leader)
        _end(self._follower)

    def _to_follower(self, leader: socket.socket, follower: socket.socket) -> None:
        stream = leader.makefile("rb")
        with stream:
            while True:
                head = stream.read(16)  # type, zxid, length of the data
                if len(head) < 16:
                    return
                kind, _, size = struct.unpack(">iqi", head)
                packet = head + stream.read(max(size, 0) + 4)  # behind the data: a list of identities, never filled
                with self._sending:
                    if self._held is None or kind in (_PROPOSAL, _PING, _REVALIDATE):
                        follower.sendall(packet)
                    else:
                        self._held.append(packet)
                if kind == _SNAP:
                    snapshot = bytearray()
                    while not snapshot.endswith(_SNAP_END):
                        snapshot += stream.read(1)
                    follower.sendall(snapshot)


def _end(connection: socket.socket | None) -> None:
    if connection is not None:
        with contextlib.suppress(OSError):  # ended already
            connection.shutdown(socket.SHUT_RDWR)
