"""Which ZooKeeper and which Java are taken, and what is said where there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zkfence.testing import LocalEnsemble, ServerFailed, ServerNotFound, _installation
from zkfence.testing._installation import find_installation


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with a Java and no ZooKeeper; the path of an empty folder."""
    java = tmp_path / "jre" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jre"))
    monkeypatch.setenv("PATH", str(empty))
    for name in ("ZKFENCE_ZOOKEEPER_CLASSPATH", "ZOOKEEPER_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_installation, "DEBIAN_JARS", empty)
    return empty


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_nothing_at_all_says_what_was_looked_for_and_what_to_install(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME")
    with pytest.raises(ServerNotFound) as failure:
        LocalEnsemble().start()
    message = str(failure.value)
    assert "no Java: neither JAVA_HOME has a bin/java, nor is there a `java` on the PATH" in message
    assert "no ZooKeeper: ZKFENCE_ZOOKEEPER_CLASSPATH and ZOOKEEPER_HOME are not set" in message
    assert f"no {bare}/zookeeper.jar" in message
    assert "apt install libzookeeper-java default-jre-headless" in message


def test_what_is_there_is_not_called_missing(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServerNotFound) as failure:
        find_installation()
    assert "no Java" not in str(failure.value)
    monkeypatch.delenv("JAVA_HOME")
    touch(bare / "zookeeper.jar")
    with pytest.raises(ServerNotFound) as failure:
        find_installation()
    assert "no ZooKeeper" not in str(failure.value)


def test_the_first_place_that_is_set_is_taken(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    debian = touch(bare / "zookeeper.jar")
    assert find_installation().classpath.split(os.pathsep)[0] == str(debian)

    home = bare / "release"
    touch(home / "lib" / "zookeeper-3.9.3.jar")
    monkeypatch.setenv("ZOOKEEPER_HOME", str(home))
    assert find_installation().classpath.split(os.pathsep) == [f"{home}/conf", f"{home}/lib/*", f"{home}/*"]

    named = str(touch(bare / "named.jar"))
    monkeypatch.setenv("ZKFENCE_ZOOKEEPER_CLASSPATH", named)
    assert find_installation().classpath == named

    given = str(touch(bare / "given.jar"))
    assert find_installation(given).classpath == given


@pytest.mark.parametrize("variable", ["ZOOKEEPER_HOME", "ZKFENCE_ZOOKEEPER_CLASSPATH"])
def test_a_place_that_is_set_but_empty_is_an_error_and_no_other_version_is_taken(
    bare: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    touch(bare / "zookeeper.jar")
    monkeypatch.setenv(variable, str(bare / "nowhere"))
    with pytest.raises(ServerNotFound, match=f"{variable}='{bare}/nowhere'"):
        find_installation()


def test_a_classpath_of_which_nothing_exists_is_named(bare: Path) -> None:
    with pytest.raises(ServerNotFound, match=r"classpath='/nowhere/a.jar:/nowhere/\*'"):
        LocalEnsemble(classpath="/nowhere/a.jar:/nowhere/*").start()


def test_java_on_the_path_is_taken_where_java_home_has_none(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(bare / "zookeeper.jar")
    java = touch(bare / "java")
    java.chmod(0o755)
    assert find_installation().java != str(java)
    monkeypatch.setenv("JAVA_HOME", str(bare / "nowhere"))
    assert find_installation().java == str(java)


def test_a_release_folder_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed = find_installation().classpath.split(os.pathsep)
    jars = [Path(entry) for entry in installed if Path(entry).is_file()]
    if not jars:
        pytest.skip("the ZooKeeper of this machine is a release folder already")
    (tmp_path / "lib").mkdir()
    for jar in jars:
        (tmp_path / "lib" / jar.name).symlink_to(jar)
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path))
    with LocalEnsemble(1) as ensemble:
        ensemble.wait_for_quorum()


def test_a_server_that_ends_while_starting_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match="node-1 has ended with status 1") as failure:
        LocalEnsemble(classpath=str(tmp_path)).start()
    assert "Could not find or load main class" in failure.value.log
    assert failure.value.log in str(failure.value)


def test_a_configuration_that_zookeeper_refuses_is_told_with_its_words() -> None:
    with pytest.raises(ServerFailed) as failure:
        LocalEnsemble(config={"tickTime": "often"}).start()
    assert 'For input string: "often"' in failure.value.log
