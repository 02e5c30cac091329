"""The wheel as a user gets it: built from this tree, installed into environments outside of it, without a network."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WHEELHOUSE = Path(sys.prefix) / "wheelhouse"


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment, and a folder to work in that is not the repository."""

    folder: Path
    workplace: Path

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment; its exit status is the caller's to judge."""
        return subprocess.run(
            [self.folder / "bin" / program, *arguments],
            cwd=self.workplace,
            env={key: value for key, value in os.environ.items() if not key.startswith("PYTHON")},
            capture_output=True,
            text=True,
            timeout=120,
        )


MakeEnvironment = Callable[[str], Environment]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, as ``make wheel`` builds it."""
    dist = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", dist], cwd=ROOT, check=True)
    (built,) = dist.iterdir()
    return built


@pytest.fixture(scope="session")
def make_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> MakeEnvironment:
    """Makes an environment with the wheel, the extras that are named ("[all]") and what pip resolves for them."""
    if not WHEELHOUSE.is_dir():
        pytest.fail(f"{WHEELHOUSE} is missing: `make setup` puts the packages of constraints.txt there", pytrace=False)

    def make(extras: str) -> Environment:
        made = Environment(tmp_path_factory.mktemp("venv"), tmp_path_factory.mktemp("workplace"))
        subprocess.run([sys.executable, "-m", "venv", made.folder], check=True)
        offline = ["--isolated", "--no-index", "--find-links", str(WHEELHOUSE)]
        installed = made.run("pip", "install", *offline, "--no-compile", f"{wheel}{extras}")
        assert installed.returncode == 0, installed.stderr
        return made

    return make


@pytest.fixture(scope="session")
def bare(make_environment: MakeEnvironment) -> Environment:
    """An environment with the wheel and without any extra."""
    return make_environment("")
