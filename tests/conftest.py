"""The servers of the tests come from zkfence's own pytest plugin, zkfence.testing.plugin, as for everybody else."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

# A shell's background job and nohup ignore these, and what ignores them stays deaf through every exec: the tests that
# send them need them as a terminal has them.
_AS_ON_A_TERMINAL = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


@pytest.fixture(scope="session", autouse=True)
def signals_as_on_a_terminal() -> Iterator[None]:
    ignored = [signum for signum in _AS_ON_A_TERMINAL if signal.getsignal(signum) is signal.SIG_IGN]
    for signum in ignored:
        signal.signal(signum, _AS_ON_A_TERMINAL[signum])
    yield
    for signum in ignored:
        signal.signal(signum, signal.SIG_IGN)
