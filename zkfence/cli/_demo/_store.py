"""Store: a real store with its receiver, and the way around it, which the demo needs to show what happens there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from zkfence_receivers import FileReceiver, Receiver, StoreFailed

from ._assignment import StoreAddress, StoreKind
from ._failure import DemoFailed

if TYPE_CHECKING:
    import redis

_ANSWER_TIMEOUT: Final = 5.0  # seconds


class Store(ABC):
    """``receiver`` keeps the promise. `peek` and `put` reach the same bytes without asking it."""

    receiver: Receiver

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @abstractmethod
    def peek(self, resource: str) -> bytes | None:
        """What is there, read as anybody could: no stamp, no claim."""

    @abstractmethod
    def put(self, resource: str, body: bytes) -> None:
        """Write it as anybody could: no stamp, no fence."""

    @abstractmethod
    def close(self) -> None: ...


class FileStore(Store):
    """Files in a folder. `FileReceiver` keeps a resource's bytes, and nothing else, in a file of its name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._receiver = FileReceiver(folder)
        self.receiver = self._receiver

    def peek(self, resource: str) -> bytes | None:
        try:
            return (self._folder / resource).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, resource: str, body: bytes) -> None:
        (self._folder / resource).write_bytes(body)

    def close(self) -> None:
        self._receiver.close()


class RedisStore(Store):
    """Keys of a Redis server. `RedisReceiver` keeps a resource's bytes in ``<prefix>:{<resource>}:data``."""

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        from zkfence_receivers import RedisReceiver

        self._client = client
        self._prefix = prefix
        self._receiver = RedisReceiver(client, prefix=prefix)
        self.receiver = self._receiver

    def check(self) -> None:
        """Raise `UnsafeStore` where the server is set up so that it may lose what it acknowledges, and `StoreFailed`
        where it cannot be reached.
        """
        self._receiver.check()

    def peek(self, resource: str) -> bytes | None:
        with _told(resource):
            body = self._client.get(self._key(resource, "data"))
        assert body is None or isinstance(body, bytes)
        return body

    def put(self, resource: str, body: bytes) -> None:
        with _told(resource):
            self._client.set(self._key(resource, "data"), body)

    def forget(self, resources: Iterable[str]) -> None:
        """Delete data *and* marks. Nobody may ever do that, unless the resources were a demo's, and it is over."""
        self._client.delete(*(self._key(resource, part) for resource in resources for part in ("data", "mark")))

    def close(self) -> None:
        self._client.close()

    def _key(self, resource: str, part: str) -> str:
        return f"{self._prefix}:{{{resource}}}:{part}"


def open_store(address: StoreAddress) -> Store:
    """Raises ImportError, which says what to install, where redis-py is needed and missing."""
    if address.kind is StoreKind.FILE:
        return FileStore(Path(address.place))
    try:
        import redis
    except ImportError as error:
        raise ImportError("the Redis store needs redis-py: pip install 'zkfence[redis]'") from error
    try:
        client = redis.Redis.from_url(address.place, socket_timeout=_ANSWER_TIMEOUT)
    except ValueError as error:
        raise DemoFailed(f"{address.place!r} is no URL of a Redis server: {error}") from error
    return RedisStore(client, address.prefix)


@contextmanager
def _told(resource: str) -> Iterator[None]:
    """Errors of redis-py in a receiver's words."""
    from redis import RedisError

    try:
        yield
    except RedisError as error:
        raise StoreFailed(resource, f"{resource!r}: {error}") from error
