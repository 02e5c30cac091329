from types import TracebackType

from kazoo.client import KazooClient

class Lock:
    def __init__(self, client: KazooClient, path: str, identifier: str | None = ...) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
