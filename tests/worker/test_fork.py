"""Forks: the child holds nothing, hangs nowhere, and does its parent no harm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from zkfence.testing import LocalEnsemble


def test_a_forked_child_is_told_and_ends_and_its_parent_goes_on(
    zkfence_ensemble: LocalEnsemble, zkfence_namespace: str
) -> None:
    program = Path(__file__).with_name("forking_process.py")
    arguments = [sys.executable, "-W", "ignore::DeprecationWarning", program, zkfence_ensemble.hosts, zkfence_namespace]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=90, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "Traceback" not in done.stderr, done.stderr
