"""TLS, with a real ZooKeeper that speaks it."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

import zkfence
from zkfence import NotConnected
from zkfence._connection._tls import tls_context
from zkfence.testing import LocalEnsemble
from zkfence.testing._installation import DEBIAN_JARS, find_installation
from zkfence_receivers.testing._ports import free_ports

_PASSWORD = "geheim"


@dataclass(frozen=True)
class Secured:
    """A server that speaks TLS only to clients with a certificate, as ``localhost``."""

    ensemble: LocalEnsemble
    port: int
    folder: Path

    @property
    def localhost(self) -> str:
        return f"localhost:{self.port}"

    def refused(self, why: str, hosts: str = "", **options: object) -> NotConnected:
        with pytest.raises(NotConnected, match=why) as caught:
            self.connect(hosts, connect_timeout=0.7, **options)
        return caught.value

    def connect(self, hosts: str = "", **options: object) -> zkfence.Client:
        defaults = {"ca": self.folder / "ca.pem", "certfile": self.folder / "client.pem"}
        return zkfence.connect(hosts or self.localhost, tls=True, **{**defaults, **options})  # type: ignore[arg-type]


def key_of(certificate: trustme.LeafCert, encryption: KeySerializationEncryption | None = None) -> bytes:
    """In PKCS 8, the one form that ZooKeeper reads."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    authority, stranger = trustme.CA(), trustme.CA()
    server, client = authority.issue_cert("localhost"), authority.issue_cert("worker@zkfence.example")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    stranger.cert_pem.write_to_path(folder / "stranger.pem")
    (folder / "server.pem").write_bytes(key_of(server) + b"".join(pem.bytes() for pem in server.cert_chain_pems))
    client.private_key_and_cert_chain_pem.write_to_path(folder / "client.pem")
    stranger.issue_cert("x@y.example").private_key_and_cert_chain_pem.write_to_path(folder / "strange-client.pem")
    (folder / "encrypted.pem").write_bytes(key_of(client, BestAvailableEncryption(_PASSWORD.encode())))
    (port,) = free_ports(1)
    settings: dict[str, str | int] = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": port,
        "secureClientPortAddress": "127.0.0.1",
        "ssl.keyStore.location": str(folder / "server.pem"),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(folder / "ca.pem"),
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "need",
    }
    # Debian's zookeeper.jar names most of Netty, and not all that it needs.
    netty = [jar for name in ("codec", "resolver") if (jar := DEBIAN_JARS / f"netty-{name}.jar").exists()]
    classpath = ":".join([find_installation().classpath, *map(str, netty)])
    with LocalEnsemble(classpath=classpath, config=settings, durable=False) as ensemble:
        yield Secured(ensemble, port, folder)


def test_a_server_with_the_right_name_is_talked_to(secured: Secured, zkfence_namespace: str) -> None:
    with secured.connect() as client:
        data = bytes(900_000)
        client.create(zkfence_namespace, data, ephemeral=True)
        answers = [client.get_async(zkfence_namespace) for _ in range(20)]
        assert all(answer.get(timeout=20) == client.get(zkfence_namespace) for answer in answers)
        assert client.command(b"ruok") == "imok"
        assert client._connection._socket._tls.version() in ("TLSv1.2", "TLSv1.3")
    assert secured.ensemble.nodes[0].role() == "standalone"


def test_many_threads(secured: Secured, zkfence_namespace: str) -> None:
    with secured.connect() as client:
        client.create(zkfence_namespace)
        done = []

        def run() -> None:
            for number in range(50):
                path = client.create(f"{zkfence_namespace}/", b"x" * (number * 200), sequence=True)
                assert client.get(path)[0] == b"x" * (number * 200)
            done.append(True)

        threads = [threading.Thread(target=run) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert done == [True] * 6


def test_a_server_with_another_name_is_refused(secured: Secured) -> None:
    error = secured.refused("certificate verify failed: IP address mismatch", f"127.0.0.1:{secured.port}")
    assert error.__cause__ is not None
    with secured.connect(f"127.0.0.1:{secured.port}", check_hostname=False) as client:
        assert client.connected


def test_a_server_of_another_authority_is_refused(secured: Secured) -> None:
    for ca in (secured.folder / "stranger.pem", None):
        secured.refused("certificate verify failed: unable to get local issuer certificate", ca=ca)
    with secured.connect(ca=None, check_hostname=False, verify=False) as client:
        assert client.connected


def test_a_client_without_the_right_certificate_is_told_that_it_was_refused(secured: Secured) -> None:
    for certfile in (None, secured.folder / "strange-client.pem"):
        secured.refused(r"The last try: localhost:\d+: .*(alert|EOF|reset)", certfile=certfile)


def test_an_encrypted_key(secured: Secured) -> None:
    key = {"certfile": secured.folder / "client.pem", "keyfile": secured.folder / "encrypted.pem"}
    with secured.connect(**key, keyfile_password=_PASSWORD) as client:
        assert client.connected
        assert _PASSWORD not in repr(vars(client))
    with pytest.raises(ValueError, match="password must be right") as caught:
        secured.connect(**key, keyfile_password="falsch")
    assert "falsch" not in str(caught.value)
    with pytest.raises(ValueError, match="say keyfile_password="):
        secured.connect(**key)


def test_plain_and_tls_do_not_understand_each_other_and_that_is_told(secured: Secured) -> None:
    with pytest.raises(NotConnected, match="The last try: localhost:"):
        zkfence.connect(secured.localhost, connect_timeout=0.7)
    secured.refused("The last try: 127.0.0.1:", secured.ensemble.hosts)


def test_tls_is_1_2_or_later_and_checks_by_default() -> None:
    context = tls_context()
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.check_hostname
    assert context.verify_mode == ssl.CERT_REQUIRED


def test_what_does_not_fit_together_is_refused(secured: Secured, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ca, keyfile_password: say tls=True too"):
        zkfence.connect("zk1", ca="x", keyfile_password=_PASSWORD)
    with pytest.raises(ValueError, match="check_hostname=False"):
        secured.connect(verify=False)
    with pytest.raises(ValueError, match="belong to a certfile="):
        secured.connect(certfile=None, keyfile=secured.folder / "client.pem")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        secured.connect(ca=tmp_path / "nowhere")
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    with pytest.raises(ValueError, match="no certificates in PEM form"):
        secured.connect(ca=nonsense)
    with pytest.raises(ValueError, match="both must be PEM"):
        secured.connect(certfile=nonsense)
