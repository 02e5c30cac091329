"""The wheel as a user gets it: built from this tree, installed into an environment outside of it, without a network."""

from __future__ import annotations

import os
import subprocess
import sys
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


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, as ``make wheel`` builds it."""
    dist = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", dist], cwd=ROOT, check=True)
    (built,) = dist.iterdir()
    return built


@pytest.fixture(scope="session")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel, no extra, and what pip resolves for it."""
    if not WHEELHOUSE.is_dir():
        pytest.fail(f"{WHEELHOUSE} is missing: `make setup` puts the packages of constraints.txt there", pytrace=False)
    made = Environment(tmp_path_factory.mktemp("venv"), tmp_path_factory.mktemp("workplace"))
    subprocess.run([sys.executable, "-m", "venv", made.folder], check=True)
    offline = ["--isolated", "--no-index", "--find-links", str(WHEELHOUSE)]
    installed = made.run("pip", "install", *offline, str(wheel))
    assert installed.returncode == 0, installed.stderr
    return made
