"""constraints.txt gives the same files on every machine, next year too, and covers what pyproject.toml asks for."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .conftest import ROOT

LOCK = (ROOT / "constraints.txt").read_text(encoding="utf-8")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

_LINES = re.sub(r"^ *#.*\n", "", LOCK, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
_HASHED = re.compile(r"(?P<requirement>[a-z0-9-]+==[^ ]+(?: ; [^-]+?)?)(?: +--hash=sha256:[0-9a-f]{64})+ *")


def _asked_for() -> list[str]:
    project = PYPROJECT["project"]
    extras = [text for extra in project["optional-dependencies"].values() for text in extra]
    everything = [
        *PYPROJECT["build-system"]["requires"],
        *project["dependencies"],
        *extras,
        *PYPROJECT["dependency-groups"]["dev"],
    ]
    return sorted({text for text in everything if Requirement(text).name != project["name"]})


@pytest.mark.parametrize("line", _LINES, ids=lambda line: line.split("==")[0])
def test_each_package_is_one_version_with_hashes(line: str) -> None:
    assert _HASHED.fullmatch(line)


def test_names_no_address_and_no_option() -> None:
    assert "://" not in LOCK
    assert not [line for line in _LINES if line.startswith(("-", "/"))]


@pytest.mark.parametrize("text", _asked_for())
def test_covers_what_the_project_asks_for(text: str) -> None:
    wanted = Requirement(text)
    versions = {
        canonicalize_name(pinned.name): str(pinned.specifier).removeprefix("==")
        for pinned in (Requirement(line.partition("--hash")[0]) for line in _LINES)
    }

    assert wanted.specifier.contains(versions[canonicalize_name(wanted.name)])
