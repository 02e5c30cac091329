"""The locks give the same files on every machine, next year too, and cover what pyproject.toml asks for."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .conftest import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("constraints.txt", "constraints-bench.txt")}

_HASHED = re.compile(r"(?P<requirement>[a-z0-9-]+==[^ ]+(?: ; [^-]+?)?)(?: +--hash=sha256:[0-9a-f]{64})+ *")


def _lines(lock: str) -> list[str]:
    return re.sub(r"^ *#.*\n", "", LOCKS[lock], flags=re.MULTILINE).replace("\\\n", " ").splitlines()


def _pinned(lock: str) -> dict[str, str]:
    pinned = [Requirement(line.partition("--hash")[0]) for line in _lines(lock)]
    return {canonicalize_name(one.name): str(one.specifier).removeprefix("==") for one in pinned}


def _asked_for() -> list[tuple[str, str]]:
    project, groups = PYPROJECT["project"], PYPROJECT["dependency-groups"]
    extras = [text for extra in project["optional-dependencies"].values() for text in extra]
    always = {*PYPROJECT["build-system"]["requires"], *project["dependencies"], *extras, *groups["dev"]}
    own = sorted(text for text in always if Requirement(text).name != project["name"])
    return [
        *(("constraints.txt", text) for text in own),
        *(("constraints-bench.txt", text) for text in groups["bench"]),
    ]


@pytest.mark.parametrize(
    "line", [line for lock in LOCKS for line in _lines(lock)], ids=lambda line: line.split("==")[0]
)
def test_each_package_is_one_version_with_hashes(line: str) -> None:
    assert _HASHED.fullmatch(line)


@pytest.mark.parametrize("lock", LOCKS)
def test_names_no_address_and_no_option(lock: str) -> None:
    assert "://" not in LOCKS[lock]
    assert not [line for line in _lines(lock) if line.startswith(("-", "/"))]


@pytest.mark.parametrize(("lock", "text"), _asked_for())
def test_covers_what_the_project_asks_for(lock: str, text: str) -> None:
    wanted = Requirement(text)

    assert wanted.specifier.contains(_pinned(lock)[canonicalize_name(wanted.name)])


def test_the_benchmarks_change_no_version_of_what_is_tested() -> None:
    tested, added = _pinned("constraints.txt"), _pinned("constraints-bench.txt")

    assert {name: added[name] for name in added.keys() & tested.keys()} == {
        name: tested[name] for name in added.keys() & tested.keys()
    }
