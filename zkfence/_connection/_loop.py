"""Connection: kazoo's connection, with a loop of its own between the connecting and the end."""

from __future__ import annotations

import logging
import math
import select
import struct
import time
from typing import Final

from kazoo.exceptions import AuthFailedError, ConnectionDropped, SessionExpiredError
from kazoo.protocol.connection import (
    _CONNECTION_DROP,
    _SESSION_EXPIRED,
    AUTH_XID,
    CLOSE_RESPONSE,
    PING_XID,
    WATCH_XID,
)
from kazoo.protocol.serialization import Auth, ReplyHeader
from kazoo.protocol.states import KeeperState

from ._channel import Channel
from ._doorbell import Doorbell
from ._ending_connection import EndingConnection
from ._frames import Frames
from ._pulse import Pulse

_REQUEST: Final = struct.Struct("!iii")  # length, xid, type
_REPLY: Final = struct.Struct("!iqi")  # xid, zxid, err
_LAST_XID: Final = 2**31 - 1


class Connection(EndingConnection):
    """Kazoo's connection, with a loop of its own between the connecting and the end.

    Connecting, authenticating, the states, the retries and what an answer means are kazoo's. Kazoo's loop, however,
    takes a request from the queue, sends it, and looks again; this one sends all that is queued at once, and reads all
    that has come at once. `_contract` tells what it relies on.
    """

    _socket: Channel
    _read_sock: Doorbell
    _connect_timeout = 0.0  # seconds, as told at the last connect

    # --- where kazoo's loop would be ------------------------------------------------------------------------------

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        read_timeout, connect_timeout = super()._connect(host, hostip, port)
        self._connect_timeout = connect_timeout / 1000
        self._socket.announce()  # so that kazoo's loop calls _read_socket in its first round
        return read_timeout, connect_timeout

    def _read_socket(self, read_timeout: float) -> object:
        """Kazoo calls it when there is something to read; this one comes back when the session is closed.

        Raises what kazoo's does, to the same end.
        """
        channel, bell = self._socket, self._read_sock
        frames, pulse = Frames(), Pulse(read_timeout, time.monotonic())
        poller = select.poll()
        poller.register(bell, select.POLLIN)
        rings = (bell.fileno(), select.POLLIN)
        wants = 0
        while True:
            bell.answer()
            if self._enqueue(channel):
                pulse.sent(time.monotonic())
            channel.flush()
            if wants != channel.wants:
                wants = channel.wants
                poller.register(channel, wants)
            wait = self.handler.ending.within(max(pulse.due - time.monotonic(), 0))
            busy = channel.at_hand or (self.client._queue and channel.has_room)
            events: list[tuple[int, int]] = []
            try:
                sleepy = bell.doze()
                events = poller.poll(0 if busy or not sleepy else math.ceil(wait * 1000))
            finally:
                bell.rouse(rung=rings in events)
            if (channel.at_hand or any(fd != rings[0] for fd, _ in events)) and self._take(channel, frames, pulse):
                return CLOSE_RESPONSE
            self._beat(pulse)

    def _take(self, channel: Channel, frames: Frames, pulse: Pulse) -> bool:
        """Read what has come; tells whether it closes the session."""
        while (piece := channel.receive()) is not None:
            if not piece:
                raise ConnectionDropped("socket connection broken")
            if self._digest(*frames.find(piece)) == CLOSE_RESPONSE:
                return True
            pulse.heard(time.monotonic(), owing=bool(self.client._pending) or self.ping_outstanding.is_set())
            if not channel.at_hand:
                break
        return False

    def _beat(self, pulse: Pulse) -> None:
        """All that has come is read: ping, if it is time, and give up a server that is gone."""
        now = time.monotonic()
        if now < pulse.due:
            return
        if pulse.gone(now):
            self.ping_outstanding.clear()
            raise ConnectionDropped("outstanding heartbeat ping not received")
        self._send_ping(self._connect_timeout)
        pulse.sent(now, ping=True)

    def _enqueue(self, channel: Channel) -> bool:
        """Write all that is queued; tells whether there was anything."""
        client = self.client
        queue, pending = client._queue, client._pending
        verbose = self.logger.isEnabledFor(logging.DEBUG)
        anything = False
        while queue and channel.has_room:
            request, result = queue[0]
            # The special requests of kazoo's tests.
            if request is _SESSION_EXPIRED:
                raise SessionExpiredError("Session expired: Testing")
            if request is _CONNECTION_DROP:
                raise ConnectionDropped("Connection dropped: Testing")
            try:
                body = request.serialize()
            except Exception as error:  # nothing that can be sent: the fault of this one request
                queue.popleft()
                result.set_exception(error)
                continue
            xid = AUTH_XID if request.type == Auth.type else self._next_xid()
            if verbose:
                self.logger.debug("Sending request(xid=%s): %s", xid, request)
            pending.append((request, result, xid))
            queue.popleft()
            channel.send(_REQUEST.pack(len(body) + 8, xid, request.type))
            channel.send(body)
            anything = True
        return anything

    def _next_xid(self) -> int:
        self._xid = self._xid % _LAST_XID + 1
        return self._xid

    def _digest(self, data: bytes, beginnings: list[int]) -> object:
        """Handle the messages that begin at these places; comes back early when the session is closed."""
        for beginning in beginnings:
            xid, zxid, err = _REPLY.unpack_from(data, beginning)
            body = beginning + _REPLY.size
            if xid == WATCH_XID:
                self._read_watch_event(data, body)
            elif xid == PING_XID:
                self.ping_outstanding.clear()
            elif xid == AUTH_XID:
                self._read_auth(err)
            elif self._read_answer(ReplyHeader(xid, zxid, err), data, body) == CLOSE_RESPONSE:
                return CLOSE_RESPONSE
        return None

    def _read_answer(self, header: ReplyHeader, data: bytes, body: int) -> object:
        if not self.client._pending:
            raise ConnectionDropped("invalid server response: an answer to nothing")
        result = self.client._pending[0][1]
        try:
            return self._read_response(header, data, body)
        except Exception as error:
            # The answers and the requests do not match any more, or kazoo does not know the error: with its own loop
            # this would be the end of the client.
            self.logger.exception("an answer that cannot be understood")
            if result is not None and not result.ready():
                result.set_exception(error)
            raise ConnectionDropped("invalid server response") from error

    def _read_auth(self, err: int) -> None:
        _, result, _ = self.client._pending.popleft()
        if err:
            result.set_exception(AuthFailedError())
            self.client._session_callback(KeeperState.AUTH_FAILED)
        else:
            result.set(True)
