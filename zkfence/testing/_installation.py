"""Installation: the ZooKeeper and the Java that this machine has."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zkfence_receivers.testing import ServerNotFound

CLASSPATH_VARIABLE: Final = "ZKFENCE_ZOOKEEPER_CLASSPATH"
HOME_VARIABLE: Final = "ZOOKEEPER_HOME"
DEBIAN_JARS: Final = Path("/usr/share/java")

_ADVICE: Final = f"""\
Install them (Debian, Ubuntu: `apt install libzookeeper-java default-jre-headless`). Elsewhere install a Java, unpack a
release from https://zookeeper.apache.org/releases.html, and let {HOME_VARIABLE} name its folder."""


@dataclass(frozen=True, slots=True)
class Installation:
    """How to run a ZooKeeper server: the ``java`` binary, and the classpath as ``java -cp`` takes it."""

    java: str
    classpath: str


def find_installation(classpath: str | None = None) -> Installation:
    """What the machine has; raises `ServerNotFound` with what was looked for and what to install.

    ZooKeeper: ``classpath``, else the environment's ``ZKFENCE_ZOOKEEPER_CLASSPATH``, else the release in
    ``ZOOKEEPER_HOME``, else Debian's package. The first of them that is set has to work: no other version is tried in
    its place. Java: in ``JAVA_HOME``, else on the ``PATH``.
    """
    java = _find_java()
    found, looked_for = _find_classpath(classpath)
    if java is not None and found is not None:
        return Installation(java, found)
    missing = []
    if java is None:
        missing.append("  - no Java: neither JAVA_HOME has a bin/java, nor is there a `java` on the PATH")
    if found is None:
        missing.append(f"  - no ZooKeeper: {looked_for}")
    raise ServerNotFound("\n".join(["This machine cannot run a ZooKeeper server.", *missing, _ADVICE]))


def _find_java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return (home and shutil.which(Path(home, "bin", "java"))) or shutil.which("java")


def _find_classpath(given: str | None) -> tuple[str | None, str]:
    """The classpath, or ``None`` and what was looked for."""
    if given:
        return _checked(given), f"nothing is there of classpath={given!r}"
    if named := os.environ.get(CLASSPATH_VARIABLE):
        return _checked(named), f"nothing is there of {CLASSPATH_VARIABLE}={named!r}"
    if home := os.environ.get(HOME_VARIABLE):
        return _of_release(Path(home)), f"{HOME_VARIABLE}={home!r} has no lib/zookeeper-*.jar"
    return (
        _of_debian(),
        f"{CLASSPATH_VARIABLE} and {HOME_VARIABLE} are not set, and there is no {DEBIAN_JARS / 'zookeeper.jar'}",
    )


def _checked(classpath: str) -> str | None:
    there = any(Path(entry.removesuffix("*")).exists() for entry in classpath.split(os.pathsep) if entry)
    return classpath if there else None


def _of_release(home: Path) -> str | None:
    if not any(jar for folder in (home / "lib", home) for jar in folder.glob("zookeeper*.jar")):
        return None
    return os.pathsep.join(map(str, [home / "conf", home / "lib" / "*", home / "*"]))  # conf: how to log


def _of_debian() -> str | None:
    jar = DEBIAN_JARS / "zookeeper.jar"
    if not jar.exists():
        return None
    # Its manifest names every other jar but the one that writes the log.
    return os.pathsep.join(map(str, [jar, DEBIAN_JARS / "slf4j-simple.jar"]))
