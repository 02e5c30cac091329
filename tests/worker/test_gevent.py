"""gevent: with kazoo's handler for it, the locks for threads are locks for greenlets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from zkfence.testing import LocalEnsemble

from .greenlets import STEPS

PROGRAM = Path(__file__).with_name("greenlets.py")


@pytest.fixture(scope="module", params=["0", "1"], ids=["plain", "patched"])
def found(request: pytest.FixtureRequest, zkfence_ensemble: LocalEnsemble) -> dict[str, str]:
    """What the steps have found in a process of their own: all of them in one, with the standard library patched or
    not."""
    arguments = [sys.executable, PROGRAM, zkfence_ensemble.hosts, f"/gevent-{request.param}", request.param]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("step", STEPS)
def test_with_gevent(found: dict[str, str], step: str) -> None:
    assert not found[step]


def test_gevent_is_not_needed() -> None:
    program = """
import sys, zkfence
lock = zkfence.FencedLock(zkfence.Client("127.0.0.1:9"), "a")
try:
    lock.acquire(timeout=0)
except zkfence.NotConnected:
    pass
assert not {"gevent", "greenlet", "eventlet"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
