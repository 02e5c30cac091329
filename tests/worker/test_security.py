"""Who may do what: ACLs of everything that is made, what is said where something is refused or open, secrets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import (
    ACL,
    CREATOR_ALL_ACL,
    OPEN_ACL_UNSAFE,
    make_acl,
    make_digest_acl,
    make_digest_acl_credential,
)

from zkfence import AccessDenied, FencedLock, _exposure
from zkfence.testing import LocalEnsemble

Eventually = Callable[..., None]
Start = Callable[..., KazooClient]

SECRET = "s3cr3t-of-the-workers"
WORKER = ("digest", f"worker:{SECRET}")
ADMIN = ("digest", "admin:other")


def worker_acl(**permissions: bool) -> ACL:
    return make_digest_acl("worker", SECRET, **permissions)


@pytest.fixture
def client(zkfence_ensemble: LocalEnsemble) -> Iterator[Start]:
    """Stock clients with credentials of their own."""
    with ExitStack() as stack:
        yield lambda *credentials, **options: stack.enter_context(
            zkfence_ensemble.client(auth_data=list(credentials), **options)
        )


def everything_below(zk: KazooClient, path: str) -> list[str]:
    found = [path]
    for name in zk.get_children(path):
        found += everything_below(zk, f"{path}/{name}")
    return found


# --- what is made carries the ACL -----------------------------------------------------------------------------------


def test_what_is_made_later_carries_the_acl_of_its_lock_and_what_was_there_keeps_its_own(
    client: Start, zkfence_namespace: str
) -> None:
    admin, worker = client(ADMIN, WORKER), client(WORKER)
    made_by_others = [make_digest_acl("admin", "other", all=True), worker_acl(read=True, write=True, create=True)]
    admin.create(zkfence_namespace, b"", acl=made_by_others)
    acl = [worker_acl(all=True)]
    with FencedLock(worker, "a", namespace=zkfence_namespace, acl=acl):
        assert admin.get_acls(zkfence_namespace)[0] == made_by_others
        below = everything_below(worker, zkfence_namespace)[1:]
        assert len(below) == 5, "epoch, locks, the lock, its counter path, the contender"
        for path in below:
            assert worker.get_acls(path)[0] == acl, path


@pytest.mark.parametrize("made", ["by zkfence", "and hardened"])
def test_the_permissions_that_the_documentation_lists_are_enough(
    client: Start, zkfence_namespace: str, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    acl = [worker_acl(create=True, delete=True, read=True, write=True), make_digest_acl("admin", "other", all=True)]
    worker = client(WORKER)
    lock = FencedLock(worker, "a", namespace=zkfence_namespace, acl=acl)
    first = lock.acquire()
    first.release()
    if made == "and hardened":
        counter = first.path.rpartition("/")[0]
        permissions: dict[str, dict[str, bool]] = {
            zkfence_namespace: {"read": True},
            f"{zkfence_namespace}/epoch": {"read": True, "write": True},
            f"{zkfence_namespace}/locks": {"create": True},
            f"{zkfence_namespace}/locks/a": {"create": True, "read": True, "write": True},
            counter: {"create": True, "delete": True, "read": True, "write": True},
        }
        admin = client(ADMIN)
        for path, permitted in permissions.items():
            admin.set_acls(path, [worker_acl(**permitted), make_digest_acl("admin", "other", all=True)])
    with FencedLock(worker, "b", namespace=zkfence_namespace, acl=acl):
        pass
    monkeypatch.setattr(FencedLock, "_ceiling", first.token.sequence + 2)
    tokens = []
    for _ in range(3):
        with lock as grant:
            tokens.append(grant.token)
    assert first.token < tokens[0] < tokens[1] < tokens[2]
    assert tokens[2].epoch > first.token.epoch, "it was rolled"


def test_what_only_its_creator_may_touch_needs_a_client_that_has_authenticated_itself(
    client: Start, zkfence_namespace: str
) -> None:
    with pytest.raises(AccessDenied, match=r"create /t-.*acl= .* not valid .*CREATOR_ALL_ACL"):
        FencedLock(client(), "a", namespace=zkfence_namespace, acl=CREATOR_ALL_ACL).acquire(timeout=5)
    with FencedLock(client(WORKER), "a", namespace=zkfence_namespace, acl=CREATOR_ALL_ACL) as grant:
        assert client(WORKER).get_acls(grant.path)[0] == [worker_acl(all=True)]


def answered(zk: KazooClient) -> None:
    """Wait until kazoo has called back for everything that was asked before."""
    last = zk.handler.event_object()
    zk.get_acls_async("/").rawlink(lambda _: last.set())
    assert last.wait(5)


# --- what is said where something is refused ------------------------------------------------------------------------


def refused(lock: FencedLock) -> AccessDenied:
    with pytest.raises(AccessDenied) as caught:
        lock.acquire(timeout=5)
    return caught.value


@pytest.mark.parametrize("credentials", [(), (("digest", "worker:wrong"),)])
def test_a_stranger_is_told_what_he_lacks_and_where(
    client: Start, zkfence_namespace: str, credentials: tuple[tuple[str, str], ...]
) -> None:
    acl = [worker_acl(all=True)]
    with FencedLock(client(WORKER), "a", namespace=zkfence_namespace, acl=acl):
        error = refused(FencedLock(client(*credentials), "a", namespace=zkfence_namespace, acl=acl))
    assert error.permission == "READ"
    assert error.path.startswith(zkfence_namespace)
    assert f"read {error.path}" in str(error)


@pytest.mark.parametrize(
    ("node", "granted", "permission"),
    [
        ("", {"write": True, "create": True}, "READ"),
        ("/epoch", {"read": True}, "WRITE"),
        ("/locks", {"read": True, "write": True, "delete": True}, "CREATE"),
    ],
)
def test_a_permission_that_is_missing_is_named(
    client: Start, zkfence_namespace: str, node: str, granted: dict[str, bool], permission: str
) -> None:
    acl = [worker_acl(all=True)]
    worker = client(WORKER)
    FencedLock(worker, "a", namespace=zkfence_namespace, acl=acl).acquire().release()
    worker.set_acls(zkfence_namespace + node, [worker_acl(**granted)])
    error = refused(FencedLock(client(WORKER), "b", namespace=zkfence_namespace, acl=acl))
    assert (error.permission, error.path.startswith(zkfence_namespace)) == (permission, True)
    assert f"no {permission} permission on {zkfence_namespace}{node}. " in str(error)


def test_what_is_refused_is_named_as_the_servers_know_it(
    client: Start, zkfence_ensemble: LocalEnsemble, zkfence_namespace: str
) -> None:
    client().create(zkfence_namespace, b"", acl=[make_acl("world", "anyone", read=True)])
    below = client(hosts=zkfence_ensemble.hosts + zkfence_namespace)
    error = refused(FencedLock(below, "a", namespace="/team"))
    assert f"create {zkfence_namespace}/team: this client has no CREATE permission on {zkfence_namespace}." in str(
        error
    )
    assert error.path == "/team"


# --- what is open to everybody --------------------------------------------------------------------------------------


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[logging.LogRecord]]:
    caplog.set_level(logging.DEBUG, logger="zkfence")
    return lambda: [
        record for record in caplog.records if record.name == "zkfence.exposure" and record.levelno >= logging.INFO
    ]


Told = Callable[[], list[logging.LogRecord]]


@pytest.fixture
def remote(zkfence_ensemble: LocalEnsemble) -> str:
    """The ensemble by a name from which nobody can tell that it is on this machine."""
    return zkfence_ensemble.hosts.replace("127.0.0.1", "127.1")


def test_an_open_namespace_is_told_of_once_per_client_and_namespace(
    client: Start, zkfence_namespace: str, told: Told, remote: str, eventually: Eventually
) -> None:
    zk = client(hosts=remote)
    for name in "ab":
        FencedLock(zk, name, namespace=zkfence_namespace).acquire().release()
    eventually(lambda: len(told()) == 1, "it was told")
    FencedLock(zk, "a", namespace=f"{zkfence_namespace}/other").acquire().release()
    eventually(lambda: len(told()) == 2, "another namespace is told of, too")
    first, second = told()
    assert first.levelno == logging.WARNING
    assert f"namespace {zkfence_namespace} is open to everybody" in first.getMessage()
    assert f"write, create, delete, admin at {zkfence_namespace}/epoch" in first.getMessage()
    assert f"namespace {zkfence_namespace}/other" in second.getMessage()


def test_on_this_machine_it_is_no_warning(
    client: Start, zkfence_namespace: str, told: Told, eventually: Eventually
) -> None:
    FencedLock(client(), "a", namespace=zkfence_namespace).acquire().release()
    eventually(lambda: len(told()) == 1, "it was told")
    assert told()[0].levelno == logging.INFO


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("[::1]", True),
        ("10.0.0.1", False),
        ("zk1", False),
        ("localhost.example.com", False),
        ("2001:db8::1", False),
    ],
)
def test_which_hosts_are_this_machine(host: str, local: bool) -> None:
    assert _exposure._is_loopback(host) is local


@pytest.mark.parametrize("node", ["", "/locks", "/epoch"])
@pytest.mark.parametrize("permission", ["create", "write", "delete", "admin"])
def test_one_open_node_is_enough(
    client: Start, zkfence_namespace: str, told: Told, eventually: Eventually, node: str, permission: str
) -> None:
    acl = [worker_acl(all=True)]
    worker = client(WORKER)
    FencedLock(worker, "a", namespace=zkfence_namespace, acl=acl).acquire().release()
    worker.set_acls(zkfence_namespace + node, [worker_acl(all=True), make_acl("world", "anyone", **{permission: True})])
    FencedLock(client(WORKER), "a", namespace=zkfence_namespace, acl=acl).acquire().release()
    eventually(lambda: len(told()) == 1, "it was told")
    assert f"world:anyone may {permission} at {zkfence_namespace}{node}. They" in told()[0].getMessage()


@pytest.mark.parametrize(
    ("acl", "why"),
    [
        ([worker_acl(all=True)], "it is closed"),
        ([worker_acl(all=True), make_acl("world", "anyone", read=True)], "reading is no change"),
        (OPEN_ACL_UNSAFE, "it is open on purpose"),
    ],
)
def test_nothing_is_told_where_there_is_nothing_to_tell(
    client: Start, zkfence_namespace: str, told: Told, acl: list[ACL], why: str
) -> None:
    worker = client(WORKER)
    FencedLock(worker, "a", namespace=zkfence_namespace, acl=acl).acquire().release()
    answered(worker)
    assert told() == [], why


def test_a_node_whose_acl_may_not_be_read_hides_no_other_and_holds_nobody_up(
    client: Start, zkfence_namespace: str, told: Told, eventually: Eventually
) -> None:
    acl = [worker_acl(all=True)]
    worker = client(WORKER)
    FencedLock(worker, "a", namespace=zkfence_namespace, acl=acl).acquire().release()
    worker.set_acls(zkfence_namespace, [worker_acl(all=True), make_acl("world", "anyone", write=True)])
    worker.set_acls(f"{zkfence_namespace}/locks", [worker_acl(create=True)])
    with FencedLock(client(WORKER), "b", namespace=zkfence_namespace, acl=acl) as grant:
        eventually(lambda: len(told()) == 1, "the other node is told of")
        grant.check()
    assert f"world:anyone may write at {zkfence_namespace}. They" in told()[0].getMessage()


# --- secrets --------------------------------------------------------------------------------------------------------


def test_credentials_are_in_no_log_record_and_no_message(
    client: Start, zkfence_namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    digest = make_digest_acl_credential("worker", SECRET)
    acl = [worker_acl(all=True), make_acl("world", "anyone", write=True)]
    worker = client(WORKER)
    lock = FencedLock(worker, "a", namespace=zkfence_namespace, acl=acl)
    with lock as grant:
        worker.delete(grant.path)
        assert grant.lost.wait(5)
        said = [repr(lock), repr(grant)]
    for node in ("/epoch", "/locks"):
        worker.set_acls(zkfence_namespace + node, [worker_acl(admin=True)])
    said += [str(refused(FencedLock(client(WORKER), "b", namespace=zkfence_namespace, acl=acl)))]
    answered(worker)
    ours = [record for record in caplog.records if record.name.startswith("zkfence")]
    assert ours
    said += [record.getMessage() + str(record.__dict__) for record in ours]
    for text in said:
        assert SECRET not in text
        assert digest.partition(":")[2] not in text


# --- SASL -----------------------------------------------------------------------------------------------------------

_JAAS = f"""
Server {{
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_worker="{SECRET}"
    user_visitor="other";
}};
"""


@pytest.fixture(scope="module")
def sasl_ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEnsemble]:
    jaas: Path = tmp_path_factory.mktemp("sasl") / "jaas.conf"
    jaas.write_text(_JAAS)
    with LocalEnsemble(
        config={"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"},
        jvm_options=[f"-Djava.security.auth.login.config={jaas}"],
    ) as ensemble:
        yield ensemble


def sasl_options(username: str, password: str) -> dict[str, Any]:
    return {"mechanism": "DIGEST-MD5", "username": username, "password": password}


def test_sasl_lets_in_whom_the_acl_names_and_nobody_else(
    sasl_ensemble: LocalEnsemble, zkfence_namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="zkfence")
    acl = [make_acl("sasl", "worker", all=True)]
    with (
        sasl_ensemble.client(sasl_options=sasl_options("worker", SECRET)) as worker,
        sasl_ensemble.client(sasl_options=sasl_options("visitor", "other")) as visitor,
        sasl_ensemble.client() as nobody,
        FencedLock(worker, "a", namespace=zkfence_namespace, acl=acl) as grant,
    ):
        assert [worker.get_acls(path)[0] for path in everything_below(worker, zkfence_namespace)] == [acl] * 6
        for stranger in (visitor, nobody):
            error = refused(FencedLock(stranger, "a", namespace=zkfence_namespace, acl=acl))
            assert (error.permission, error.path.startswith(zkfence_namespace)) == ("READ", True)
        grant.check()
    assert SECRET not in "".join(record.getMessage() for record in caplog.records if record.name.startswith("zkfence"))
