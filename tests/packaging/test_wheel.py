"""The wheel has everything, asks for kazoo alone, and tells which extra is missing."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from .conftest import Environment


@pytest.mark.parametrize(
    "name",
    [
        "zkfence/py.typed",
        "zkfence_receivers/py.typed",
        "zkfence_receivers/_redis/admit.lua",
        "zkfence_receivers/admit_vectors.json",
    ],
)
def test_has_what_is_no_python_module(wheel: Path, name: str) -> None:
    assert name in zipfile.Path(wheel).root.namelist()


def test_has_the_two_packages_and_nothing_else(wheel: Path) -> None:
    names = {path.name for path in zipfile.Path(wheel).iterdir()}

    assert {name for name in names if not name.endswith(".dist-info")} == {"zkfence", "zkfence_receivers"}


def test_brings_kazoo_and_no_other_package(bare: Environment) -> None:
    listed = json.loads(bare.run("pip", "list", "--format", "json", "--disable-pip-version-check").stdout)

    assert {package["name"] for package in listed} - {"pip", "setuptools"} == {"zkfence", "kazoo"}


@pytest.mark.parametrize("module", ["zkfence", "zkfence_receivers", "zkfence.testing", "zkfence_receivers.testing"])
def test_is_imported_with_kazoo_alone(bare: Environment, module: str) -> None:
    imported = bare.run("python", "-W", "error", "-c", f"import {module}; print({module}.__file__)")

    assert imported.returncode == 0, imported.stderr
    assert Path(imported.stdout.strip()).is_relative_to(bare.folder)


def test_the_redis_receiver_names_its_extra(bare: Environment) -> None:
    imported = bare.run("python", "-c", "from zkfence_receivers import RedisReceiver")

    assert imported.returncode == 1
    assert "ImportError" in imported.stderr
    assert "zkfence[redis]" in imported.stderr


def test_the_command_names_its_extra(bare: Environment) -> None:
    ran = bare.run("zkfence", "demo")

    assert ran.returncode == 2
    assert "zkfence[cli]" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_tells_of_its_extras_the_command_and_the_pytest_plugin(bare: Environment) -> None:
    told = bare.run(
        "python",
        "-c",
        "from importlib.metadata import distribution\n"
        "zkfence = distribution('zkfence')\n"
        "print(*sorted(zkfence.metadata.get_all('Provides-Extra')))\n"
        "print(*sorted(f'{entry.group}:{entry.name}' for entry in zkfence.entry_points))",
    )

    assert told.stdout.splitlines() == ["all cli redis sasl testing", "console_scripts:zkfence pytest11:zkfence"]
