"""What a run was made on."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Final

from zkfence.testing._installation import find_installation

from . import _curator

_ROOT: Final = Path(__file__).parents[2]


def describe() -> dict[str, str]:
    """Facts, by what they are called."""
    return {
        "processor": f"{os.cpu_count()} cores, {_processor()}",
        "system": f"{platform.system()} {platform.release()}, load {os.getloadavg()[0]:.2f} at the start",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "Java": _java(),
        "zkfence": f"{version('zkfence')}, {_commit()}",
        "kazoo": version("kazoo"),
        "Curator": _curator.version(),
    }


def _processor() -> str:
    try:
        names = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def _java() -> str:
    told = subprocess.run([find_installation().java, "-version"], capture_output=True, text=True, check=False).stderr
    named = re.search(r'version "([^"]+)"', told)
    return named[1] if named else "?"


def _commit() -> str:
    """Of the tree that is measured; a tree without git has none."""
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=_ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "no commit"
    return f"commit {told.stdout.strip()}"
