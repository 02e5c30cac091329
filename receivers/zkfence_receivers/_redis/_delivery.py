"""Delivery: one command on its way to the server, and what is known about it when no answer comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, cast

from redis.exceptions import AuthenticationError, AuthorizationError, BusyLoadingError, NoScriptError, ResponseError

if TYPE_CHECKING:
    from redis.connection import ConnectionPool
    from redis.retry import Retry

# The last three are connection errors to redis-py, but are answers: the server did nothing.
_ANSWERS: Final = (ResponseError, AuthenticationError, AuthorizationError, BusyLoadingError)


class _Connection(Protocol):
    """What is used of redis-py's connections, most of which have no types."""

    retry: Retry

    def connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def send_command(self, *command: bytes | str | int) -> None: ...
    def read_response(self, disable_decoding: bool) -> object: ...


class Delivery:
    """Sends commands over a client's connections, as often as that client's retry policy says.

    ``client.execute_command`` does the same, but does not tell whether it sent a command twice. That matters: a
    refusal of the second copy says nothing about the first one. Answers are bytes, whatever the client decodes.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self.unclear = False  # whether some copy was sent and never answered, so that it may have been carried out

    def ask(self, *command: bytes | str | int, resend: bool = True) -> object:
        """Send one command and return the answer. Raises redis-py's errors.

        ``resend`` permits to send it again after a lost connection or a timeout.
        """
        pooled = self._pool.get_connection()
        connection = cast(_Connection, pooled)
        try:
            if not resend:
                return self._send(connection, command)
            return connection.retry.call_with_retry(
                lambda: self._send(connection, command), lambda _: connection.disconnect()
            )
        except NoScriptError:
            raise
        except BaseException:
            # An answer that is still on its way must not meet the next request; and after some errors, a server hangs
            # up, which the next request must not be blamed for.
            connection.disconnect()
            raise
        finally:
            self._pool.release(pooled)

    def _send(self, connection: _Connection, command: tuple[bytes | str | int, ...]) -> object:
        connection.connect()  # here, and not as a part of sending: a failure proves that nothing was sent
        try:
            connection.send_command(*command)
            return connection.read_response(disable_decoding=True)
        except _ANSWERS:
            raise
        except BaseException:
            self.unclear = True
            raise
