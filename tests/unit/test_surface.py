"""What the packages export."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest


@pytest.mark.parametrize("package", ["zkfence", "zkfence.aio", "zkfence_receivers", "zkfence_receivers.words"])
def test_all_is_sorted_and_complete(package: str) -> None:
    module = importlib.import_module(package)
    exported = list(module.__all__)
    assert exported == sorted(exported, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith(package.partition(".")[0])
    }
    assert public <= set(exported)
    assert all(getattr(module, name) is not None for name in exported)


@pytest.mark.parametrize(
    ("package", "absent"),
    [
        ("zkfence_receivers", ["kazoo", "zkfence", "redis", "typer", "rich"]),
        ("zkfence", ["redis", "typer", "rich", "zkfence.aio"]),
    ],
)
def test_importing_a_half_does_not_pull_in_the_other(package: str, absent: list[str]) -> None:
    code = f"import sys, {package}; sys.exit(', '.join(set({absent!r}) & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
