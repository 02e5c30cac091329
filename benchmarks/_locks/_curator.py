"""Curator's worker: a small Java program on Debian's jars."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from zkfence.testing._installation import DEBIAN_JARS, find_installation

_SOURCE: Final = Path(__file__).with_name("CuratorWorker.java")
_RECIPES: Final = DEBIAN_JARS / "curator-recipes.jar"  # its manifest names all others but the one that writes the log
_NO_LOG: Final = DEBIAN_JARS / "slf4j-nop.jar"


def missing() -> str | None:
    """What this machine lacks for it."""
    if _javac() is None:
        return "there is no javac (Debian: default-jdk-headless)"
    if not _RECIPES.exists():
        return f"there is no {_RECIPES} (Debian: libcurator-recipes-java)"
    return None


def compile_worker(build: Path) -> None:
    """Compile it into the folder ``build``. Raises `subprocess.CalledProcessError`."""
    javac = _javac()
    assert javac is not None
    build.mkdir(parents=True, exist_ok=True)
    subprocess.run([javac, "--release", "11", "-d", build, "-cp", _classpath(), _SOURCE], check=True)


def command(build: Path, hosts: str, session_timeout: float, *, shared: bool) -> Sequence[str]:
    """Starts it. The JVM is as it comes, but for its heap: nobody's client has a quarter of the machine.

    ``shared``: whether the threads that contend share one InterProcessMutex.
    """
    classpath = f"{build}{os.pathsep}{_classpath()}"
    java = find_installation().java
    return [
        java,
        "-Xmx512m",
        "-cp",
        classpath,
        "CuratorWorker",
        hosts,
        str(session_timeout),
        "shared" if shared else "each",
    ]


def version() -> str:
    """Debian names a link to each jar after its version."""
    links = sorted(_RECIPES.parent.glob("curator-recipes-*.jar"))
    return links[-1].stem.removeprefix("curator-recipes-") if links else "?"


def _javac() -> str | None:
    beside = Path(find_installation().java).with_name("javac")
    return shutil.which(beside) or shutil.which("javac")


def _classpath() -> str:
    return os.pathsep.join(map(str, [_RECIPES, _NO_LOG]))
