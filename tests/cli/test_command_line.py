"""The command line around the commands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version

import pytest

MAIN = "from zkfence.cli import main; main()"


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_it_says_what_to_install(missing: str) -> None:
    ended = run(f"import sys; sys.modules[{missing!r}] = None; {MAIN}", "demo")
    assert ended.returncode == 2
    assert "pip install 'zkfence[cli]'" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_another_missing_module_is_not_blamed_on_the_extra() -> None:
    ended = run(f"import sys; sys.modules['kazoo.client'] = None; {MAIN}", "demo")
    assert ended.returncode == 1
    assert "kazoo.client" in ended.stderr
    assert "zkfence[cli]" not in ended.stderr


def test_the_version_is_that_of_the_distribution() -> None:
    ended = run(MAIN, "--version")
    assert (ended.returncode, ended.stdout) == (0, f"zkfence {version('zkfence')}\n")


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"]])
def test_help_fits_a_terminal_of_80_columns(arguments: Sequence[str]) -> None:
    ended = run(MAIN, *arguments)
    assert ended.returncode == 0
    assert all(len(line) <= 80 for line in ended.stdout.splitlines())
    assert "demo" in ended.stdout


@pytest.mark.parametrize(
    "arguments", [["--receiver", "tape"], ["--receiver", "file", "--redis", "redis://x"], ["--session-timeout", "0"]]
)
def test_wishes_that_cannot_be_granted_are_usage_errors(arguments: Sequence[str]) -> None:
    ended = run(MAIN, "demo", *arguments)
    assert ended.returncode == 2
    assert "Usage: " in ended.stderr
