"""Stage: the real things that the acts are played on."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kazoo.client import KazooClient

import zkfence
from zkfence.testing import LocalEnsemble, LocalRedis
from zkfence_receivers.testing._workspace import Workspace

from ._assignment import Assignment, StoreAddress, StoreKind
from ._audience import Audience, Setting
from ._failure import DemoFailed
from ._interruption import Interruption
from ._namespace import remove_namespace
from ._store import RedisStore, Store, open_store
from ._timeline import Clock
from ._worker import Worker

LOCK: Final = "reports"
_CONNECT_TIMEOUT: Final = 15.0  # seconds


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user asked for. ``zk`` and ``redis`` are servers that run already, ``folder`` is one to keep the
    reports in; ``None``: one of the demo's own. ``session_timeout`` is in seconds.
    """

    store: StoreKind
    zk: str | None
    redis: str | None
    session_timeout: float
    folder: Path | None


@dataclass(frozen=True, slots=True)
class Stage:
    """``zk`` is the demo's own client, which only looks."""

    zk: KazooClient
    hosts: str
    namespace: str
    session_timeout: float
    store: Store
    address: StoreAddress
    workspace: Workspace
    clock: Clock
    interruption: Interruption

    def hire(self, name: str, resource: str) -> Worker:
        """A worker process, for a ``with`` block. It is not ready yet: its first answer says so."""
        assignment = Assignment(name, self.hosts, self.session_timeout, self.namespace, LOCK, resource, self.address)
        return Worker(assignment, self.workspace, self.interruption)


@contextmanager
def build_stage(
    wishes: Wishes, resources: Sequence[str], interruption: Interruption, audience: Audience, clock: Clock
) -> Iterator[Stage]:
    """Start what is not there yet. The end of the block leaves nothing of it behind, and nothing in servers of others.

    Raises `LocalServerError`, `NotConnected`, a receiver's error where the store is not fit, and ImportError.
    """
    with ExitStack() as stack:
        try:
            workspace = stack.enter_context(closing(Workspace("demo")))
            with audience.preparing("Starting ZooKeeper" if wishes.zk is None else "Asking ZooKeeper"):
                hosts = wishes.zk or stack.enter_context(LocalEnsemble()).hosts
                zk = stack.enter_context(_client(hosts, interruption))
            namespace = f"/zkfence-demo-{secrets.token_hex(4)}"
            if wishes.zk is not None:
                stack.callback(_clean, audience, namespace, lambda: remove_namespace(zk, namespace))
            with audience.preparing("Preparing the store"):
                address = _store_address(wishes, workspace, stack)
                interruption.check()
                store = stack.enter_context(open_store(address))
                if isinstance(store, RedisStore):
                    with interruption.waiting("an answer of Redis", _CONNECT_TIMEOUT):
                        store.check()
                    if wishes.redis is not None:
                        stack.callback(_clean, audience, f"{address.prefix}:*", lambda: store.forget(resources))
            audience.opening(_setting(wishes, hosts, address))
            yield Stage(zk, hosts, namespace, wishes.session_timeout, store, address, workspace, clock, interruption)
        finally:
            interruption.end()


def _client(hosts: str, interruption: Interruption) -> zkfence.Client:
    with interruption.waiting("an answer of ZooKeeper", 2 * _CONNECT_TIMEOUT):
        try:
            return zkfence.connect(hosts, connect_timeout=_CONNECT_TIMEOUT)
        except ValueError as error:
            raise DemoFailed(f"{hosts!r} is no connection string of ZooKeeper: {error}") from error


def _store_address(wishes: Wishes, workspace: Workspace, stack: ExitStack) -> StoreAddress:
    if wishes.store is StoreKind.REDIS:
        url = wishes.redis or stack.enter_context(LocalRedis()).url
        return StoreAddress(StoreKind.REDIS, url, f"zkfence-demo-{secrets.token_hex(4)}")
    return StoreAddress(StoreKind.FILE, str(wishes.folder or workspace.path / "reports"))


def _clean(audience: Audience, what: str, clean: Callable[[], None]) -> None:
    """Clean up at somebody else's server. That it cannot be done is no reason to forget how the demo ended."""
    try:
        clean()
    except Exception as error:
        audience.trouble(f"{what} could not be removed ({type(error).__name__}: {error}); please do so yourself")


def _setting(wishes: Wishes, hosts: str, address: StoreAddress) -> Setting:
    ours = ", started for this demo"
    if address.kind is StoreKind.FILE:
        store = f"files in {address.place}"
    else:
        server = urlsplit(address.place)
        place = f"{server.hostname}:{server.port or 6379}" if server.hostname else server.path
        store = f"Redis at {place}{'' if wishes.redis else ours}"
    return Setting(f"{hosts}{'' if wishes.zk else ours}", store, address.kind, wishes.session_timeout)
