"""The pytest plugin: fixtures with real servers. Installed with zkfence, it is there without being asked for.

==========================  ========  =========================================================================
``zkfence_ensemble``        session   `LocalEnsemble`, one ZooKeeper server
``zkfence_ensemble3``       session   `LocalEnsemble`, three of them
``zkfence_redis``           session   `LocalRedis`, a durable Redis server
``zkfence_namespace``       function  a path of the test's own, ``"/t-…"``, for ``namespace=`` or as a prefix
``zkfence_zk``              function  a started KazooClient on ``zkfence_ensemble``, stopped after the test
==========================  ========  =========================================================================

A server lives from the first test that asks for it to the end of the session, and tests share it: use names of your
own (``zkfence_namespace``), and leave the servers running. A test that leaves one of them dead should start its own.

Where the machine has no such server, a test that asks for it fails and says what to install. With
``ZKFENCE_SKIP_MISSING=1`` in the environment it is skipped instead, for machines where that is no news.

Everybody's pytest loads this file: it imports nothing heavy until a fixture is used.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeVar

import pytest

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from . import LocalEnsemble, LocalRedis

SKIP_VARIABLE: Final = "ZKFENCE_SKIP_MISSING"


@pytest.fixture(scope="session")
def zkfence_ensemble() -> Iterator[LocalEnsemble]:
    """One ZooKeeper server for the whole test session."""
    from . import LocalEnsemble

    yield from _served(LocalEnsemble(1))


@pytest.fixture(scope="session")
def zkfence_ensemble3() -> Iterator[LocalEnsemble]:
    """A ZooKeeper ensemble of three servers for the whole test session."""
    from . import LocalEnsemble

    yield from _served(LocalEnsemble(3))


@pytest.fixture(scope="session")
def zkfence_redis() -> Iterator[LocalRedis]:
    """A durable Redis server for the whole test session."""
    from . import LocalRedis

    yield from _served(LocalRedis())


@pytest.fixture
def zkfence_namespace() -> str:
    """A ZooKeeper path (not made yet), or a prefix of keys, that no other test has."""
    return f"/t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def zkfence_zk(zkfence_ensemble: LocalEnsemble) -> Iterator[KazooClient]:
    """A started KazooClient on ``zkfence_ensemble``; its session ends with the test."""
    with zkfence_ensemble.client() as zk:
        yield zk


Server = TypeVar("Server", "LocalEnsemble", "LocalRedis")


def _served(server: Server) -> Iterator[Server]:
    """Start ``server`` for a fixture; tell a missing one in its own words."""
    from . import ServerNotFound

    missing = None
    try:
        server.start()
    except ServerNotFound as error:
        missing = str(error)
    if missing is not None:
        if os.environ.get(SKIP_VARIABLE) == "1":
            pytest.skip(missing)
        pytest.fail(missing, pytrace=False)
    with contextlib.closing(server):
        yield server
