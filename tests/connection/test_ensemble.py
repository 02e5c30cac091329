"""Three servers: one after the other may go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from kazoo.exceptions import ConnectionLoss, NotReadOnlyCallError
from kazoo.protocol.states import KeeperState

import zkfence
from zkfence.testing import LocalEnsemble


@pytest.fixture(scope="module")
def ensemble() -> Iterator[LocalEnsemble]:
    """It serves reads when it has lost its quorum; sessions without a quorum are local ones."""
    local = {"localSessionsEnabled": "true", "localSessionsUpgradingEnabled": "true"}
    with LocalEnsemble(3, durable=False, config=local, jvm_options=["-Dreadonlymode.enabled=true"]) as ensemble:
        yield ensemble


def test_the_session_outlives_the_leader(ensemble: LocalEnsemble, zkfence_namespace: str) -> None:
    with zkfence.connect(ensemble.hosts, session_timeout=20.0) as client:
        session = client.client_id
        client.create(zkfence_namespace, ephemeral=True)
        errors: list[BaseException] = []
        over = threading.Event()

        def ask() -> None:
            try:
                while not over.is_set():
                    try:
                        assert client.get(zkfence_namespace)[0] == b""
                    except ConnectionLoss:
                        client.handler.sleep_func(0.02)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        leader = ensemble.leader()
        leader.kill()
        ensemble.wait_for_quorum()
        client.retry(client.create, f"{zkfence_namespace}-2", ephemeral=True)
        over.set()
        for thread in threads:
            thread.join()
        assert not errors
        assert client.client_id == session
        leader.restart()
        leader.wait_until_serving()


def test_a_read_only_client_is_content_with_a_server_without_a_quorum_until_there_is_one(
    ensemble: LocalEnsemble, eventually: Callable[..., None]
) -> None:
    killed = [*ensemble.nodes[:2]]
    for node in killed:
        node.kill()
    # Not one that was connected before: such a server refuses the sessions of the ensemble.
    with zkfence.connect(ensemble.hosts, read_only=True, connect_timeout=30.0) as reader:
        assert reader.client_state == KeeperState.CONNECTED_RO
        assert reader.exists("/zookeeper") is not None
        with pytest.raises(NotReadOnlyCallError):
            reader.create("/x")
        for node in killed:
            node.restart()
        eventually(lambda: reader.client_state == KeeperState.CONNECTED, "it has found one that can write", within=30)
        assert reader.retry(reader.exists, "/zookeeper") is not None
