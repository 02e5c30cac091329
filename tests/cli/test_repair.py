"""`zkfence epoch raise` and `zkfence namespace adopt`: the errors' own commands, run as they are printed."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from kazoo.security import make_digest_acl
from typer.testing import CliRunner

import zkfence
from zkfence import FencedLock, Token
from zkfence.cli._app import app
from zkfence.testing import LocalEnsemble
from zkfence_receivers import FileReceiver, MemoryReceiver, Receiver, Refused, TokenRegressed, WrongNamespace

MAIN = "from zkfence.cli import main; main()"
PLAIN: dict[str, str | None] = {"ZKFENCE_ZK": None, "ZKFENCE_ZK_AUTH": None}


def run(command: str, *, answer: str = "", hosts: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command of the command line. ``hosts`` is what the environment says."""
    program, *arguments = shlex.split(command)
    assert program == "zkfence"
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ZKFENCE_ZK")}
    return subprocess.run(
        [sys.executable, "-c", MAIN, *arguments],
        input=answer, capture_output=True, text=True, timeout=60,
        env=plain | ({"ZKFENCE_ZK": hosts} if hosts else {}),
    )  # fmt: skip


class History:
    """A ZooKeeper whose data can be copied, restored from the copy, and wiped."""

    def __init__(self, ensemble: LocalEnsemble, folder: Path) -> None:
        self._ensemble = ensemble
        self._data = ensemble.nodes[0].folder / "data" / "version-2"
        self._copy = folder / "copy"
        self.hosts = ensemble.hosts

    def copy(self) -> None:
        self._ensemble.stop()
        shutil.copytree(self._data, self._copy)
        self._ensemble.restart()

    def restore(self) -> None:
        self.wipe(restart=False)
        shutil.copytree(self._copy, self._data)
        self._ensemble.restart()

    def wipe(self, *, restart: bool = True) -> None:
        self._ensemble.stop()
        shutil.rmtree(self._data)
        if restart:
            self._ensemble.restart()


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with LocalEnsemble() as ensemble:
        yield History(ensemble, tmp_path)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[list[Receiver]]:
    with FileReceiver(tmp_path / "store") as files:
        yield [files, MemoryReceiver()]


def write(hosts: str, stores: list[Receiver], lock: str, times: int = 1) -> Token:
    """A worker's day: take the lock, claim, write; in every store."""
    with zkfence.connect(hosts) as zk:
        for time in range(times):
            with FencedLock(zk, lock).acquire(timeout=20) as grant:
                for store in stores:
                    report = store.claim(f"report of {lock}", grant)
                    report.write(b"%d by %s" % (time, grant.token.dotted.encode()))
                    assert report.read() == b"%d by %s" % (time, grant.token.dotted.encode())
    return grant.token


def refused(hosts: str, stores: list[Receiver], lock: str) -> Refused:
    errors = []
    with zkfence.connect(hosts) as zk, FencedLock(zk, lock).acquire(timeout=20) as grant:
        for store in stores:
            with pytest.raises(Refused) as caught:
                store.claim(f"report of {lock}", grant)
            errors.append(caught.value)
    assert len({(type(error), str(error)) for error in errors}) == 1
    return errors[0]


def test_after_zookeeper_was_made_anew(history: History, stores: list[Receiver]) -> None:
    last = {lock: write(history.hosts, stores, lock, times=3) for lock in ("a", "b")}
    history.wipe()

    error = refused(history.hosts, stores, "b")
    assert isinstance(error, WrongNamespace)
    assert error.mark is not None
    lost = error.mark.lock.partition("/")[0]
    assert error.command == f"zkfence namespace adopt --id {lost} --above {last['b'].dotted}"
    assert f"`{error.command}`" in str(error)

    told = run(error.command, answer="y\n", hosts=history.hosts)
    assert told.returncode == 0, told.stderr
    assert f"->  {lost}" in told.stdout
    assert "gone for good" in told.stdout
    assert "audit:" in told.stderr
    for lock in ("a", "b", "new"):
        token = write(history.hosts, stores, lock, times=2)
        assert token > last["b"]
        for store in stores:
            mark = store.mark(f"report of {lock}")
            assert mark is not None
            assert (mark.token, mark.lock) == (token, f"{lost}/{lock}")


def test_after_zookeeper_was_restored_from_a_copy(history: History, stores: list[Receiver]) -> None:
    for lock in ("a", "b"):
        write(history.hosts, stores, lock)
    history.copy()
    last = {lock: write(history.hosts, stores, lock, times=3) for lock in ("a", "b", "opened later")}
    history.restore()

    error = refused(history.hosts, stores, "a")
    assert isinstance(error, TokenRegressed)
    assert error.command == f"zkfence epoch raise --above {last['a'].dotted} --zk {history.hosts} --namespace /zkfence"
    for part in (error.stamp.token.dotted, last["a"].dotted, f"`{error.command}`"):
        assert part in str(error)

    told = run(error.command, answer="y\n")
    assert told.returncode == 0, told.stderr
    for lock in ("a", "b", "opened later", "new"):
        token = write(history.hosts, stores, lock, times=2)
        assert token > last.get(lock, last["a"])


# --- the command line around it ---------------------------------------------------------------------------------


@pytest.fixture
def namespace(zkfence_zk: zkfence.Client, zkfence_namespace: str) -> str:
    """A namespace with a lock, of which token 1.0 was issued."""
    with FencedLock(zkfence_zk, "a", namespace=zkfence_namespace):
        return zkfence_namespace


def on(ensemble: LocalEnsemble, namespace: str, command: str, answer: str = "") -> Result:
    """In this process, which is faster."""
    return CliRunner().invoke(
        app, shlex.split(f"{command} --zk {ensemble.hosts} --namespace {namespace}"), input=answer, env=PLAIN
    )


def epoch(zk: zkfence.Client, namespace: str) -> int:
    return int(zk.get(f"{namespace}/epoch")[0])


def test_it_asks_first_and_no_is_no(
    zkfence_ensemble: LocalEnsemble, zkfence_zk: zkfence.Client, namespace: str
) -> None:
    for answer in ("n\n", ""):
        told = on(zkfence_ensemble, namespace, "epoch raise --above 7.41", answer)
        assert told.exit_code == 1
        assert "1  ->  7" in told.stdout
    assert epoch(zkfence_zk, namespace) == 1
    assert on(zkfence_ensemble, namespace, "epoch raise --above 7.41 --dry-run").exit_code == 0
    assert epoch(zkfence_zk, namespace) == 1
    assert on(zkfence_ensemble, namespace, "epoch raise --above 7.41 --yes").exit_code == 0
    assert epoch(zkfence_zk, namespace) == 7


def test_what_is_held_is_named_and_the_exit_status_tells(
    zkfence_ensemble: LocalEnsemble, zkfence_zk: zkfence.Client, namespace: str
) -> None:
    with FencedLock(zkfence_zk, "a", namespace=namespace) as grant:
        told = on(zkfence_ensemble, namespace, f"epoch raise --above {int(grant.token)} --yes --json --wait 0.2")
        assert told.exit_code == 3
        report = json.loads(told.stdout)
        (remaining,) = report.pop("remaining")
        assert (remaining["lock_name"], remaining["path"]) == ("a", grant.path)
        assert report == {
            "above": str(grant.token),
            "namespace": namespace,
            "former_id": grant.stamp("r").lock.partition("/")[0],
            "namespace_id": grant.stamp("r").lock.partition("/")[0],
            "former_epoch": 1,
            "epoch": 1,
            "locks": 1,
            "retired": 0,
            "objections": [],
            "dry_run": False,
        }
        assert "waiting for lock 'a'" in told.stderr
    assert on(zkfence_ensemble, namespace, "epoch raise --above 1.0 --yes").exit_code == 0


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("epoch raise --above 4294967295.0", "EpochExhausted"),
        ("epoch raise --above 4294967290.0", "--force"),
        ("namespace adopt --id a/b --above 7.0", "no namespace id"),
    ],
)
def test_what_would_do_harm_is_refused_even_with_yes(
    zkfence_ensemble: LocalEnsemble, zkfence_zk: zkfence.Client, namespace: str, command: str, said: str
) -> None:
    told = on(zkfence_ensemble, namespace, f"{command} --yes")
    assert told.exit_code == 1
    assert said in told.stderr
    assert "Traceback" not in told.stderr
    assert epoch(zkfence_zk, namespace) == 1


@pytest.mark.parametrize("token", ["0", "0.0", "-1", "1.5.2", "1_0", "07", "1.2147483648", "4294967296.0", "x", "1e3"])
def test_what_is_no_token_is_a_usage_error(token: str) -> None:
    told = CliRunner().invoke(app, ["epoch", "raise", "--zk", "127.0.0.1:1", f"--above={token}"])
    assert told.exit_code == 2
    assert "a token is" in told.stderr


def test_without_hosts_it_says_which_option_is_missing() -> None:
    told = CliRunner().invoke(app, ["epoch", "raise", "--above", "1.5"], env=PLAIN)
    assert told.exit_code == 2
    assert "--zk" in told.stderr


def test_a_namespace_that_is_not_there_is_told(zkfence_ensemble: LocalEnsemble, zkfence_namespace: str) -> None:
    told = on(zkfence_ensemble, zkfence_namespace, "epoch raise --above 1.5 --yes")
    assert told.exit_code == 1
    assert "namespace adopt" in told.stderr


def test_a_guarded_namespace_takes_credentials_from_the_environment(
    zkfence_ensemble: LocalEnsemble, zkfence_zk: zkfence.Client, zkfence_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    zkfence_zk.add_auth("digest", "worker:secret")
    private = [make_digest_acl("worker", "secret", all=True)]
    with FencedLock(zkfence_zk, "a", namespace=zkfence_namespace, acl=private):
        pass
    refused = on(zkfence_ensemble, zkfence_namespace, "epoch raise --above 1.5 --yes")
    assert refused.exit_code == 1
    assert "AccessDenied" in refused.stderr
    monkeypatch.setitem(PLAIN, "ZKFENCE_ZK_AUTH", "digest:worker:secret")
    told = on(zkfence_ensemble, zkfence_namespace, "epoch raise --above 1.5 --yes")
    assert told.exit_code == 0, told.stderr
    assert "secret" not in told.stdout + told.stderr
