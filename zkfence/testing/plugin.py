"""The pytest plugin: fixtures with real servers. Installed with zkfence, it is there without being asked for.

==========================  ========  ==========================================================
``zkfence_redis``           session   `LocalRedis`, a durable Redis server
==========================  ========  ==========================================================

Where the machine has no such server, a test that asks for it fails and says what to install. With
``ZKFENCE_SKIP_MISSING=1`` in the environment it is skipped instead: for machines where that is no news.

Everybody's pytest loads this file: it imports nothing heavy until a fixture is used.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from . import LocalRedis

SKIP_VARIABLE: Final = "ZKFENCE_SKIP_MISSING"


@pytest.fixture(scope="session")
def zkfence_redis() -> Iterator[LocalRedis]:
    """A durable Redis server for the whole test session; use keys that no other test uses."""
    from . import LocalRedis

    server = LocalRedis()
    with _missing_server_told():
        server.start()
    with contextlib.closing(server):
        yield server


@contextlib.contextmanager
def _missing_server_told() -> Iterator[None]:
    from . import ServerNotFound

    try:
        yield
    except ServerNotFound as error:
        if os.environ.get(SKIP_VARIABLE) == "1":
            pytest.skip(str(error))
        pytest.fail(str(error), pytrace=False)
