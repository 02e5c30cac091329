"""LocalEnsemble: real ZooKeeper servers that come up, fall, come back, and go."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from zkfence.testing import LocalEnsemble, LocalNode, ServerFailed
from zkfence_receivers.testing import _ports
from zkfence_receivers.testing._signals import has_ended
from zkfence_receivers.testing._wait import wait_until


@pytest.fixture(scope="module")
def one_node() -> Iterator[LocalEnsemble]:
    with LocalEnsemble(1) as ensemble:
        yield ensemble


def follows(node: LocalNode) -> bool:
    return wait_until(lambda: node.role() == "follower", timeout=20.0)


def test_one_server_stands_alone_and_serves(one_node: LocalEnsemble) -> None:
    [node] = one_node.nodes
    assert node.role() == "standalone"
    assert one_node.leader() is node
    assert one_node.followers() == []
    assert one_node.hosts == f"127.0.0.1:{node.port}"
    with one_node.client() as zk:
        zk.create("/served", b"yes", ephemeral=True)
        assert zk.get("/served")[0] == b"yes"


def test_three_servers_are_one_leader_and_two_followers_when_the_start_returns(three_nodes: LocalEnsemble) -> None:
    # The first test of these three: nobody has waited for anything but their start.
    assert sorted(str(node.role()) for node in three_nodes.nodes) == ["follower", "follower", "leader"]
    assert three_nodes.leader() not in three_nodes.followers()
    assert re.fullmatch(r"127\.0\.0\.1:\d+(,127\.0\.0\.1:\d+){2}", three_nodes.hosts)


def test_only_the_loopback_interface_is_listened_on(ensemble3: LocalEnsemble) -> None:
    listening = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            address, port = fields[1].split(":")
            if fields[3] == "0A":  # LISTEN
                listening.add((int(port, 16), address))
    configured = (ensemble3.nodes[0].folder / "zoo.cfg").read_text()
    ports = {node.port for node in ensemble3.nodes} | {int(port) for port in re.findall(r":(\d+)", configured)}
    assert len(ports) == 9
    loopback = {"0100007F", "0000000000000000FFFF00000100007F"}
    assert {address for port, address in listening if port in ports} <= loopback


def test_sessions_longer_than_twenty_ticks_are_granted(one_node: LocalEnsemble) -> None:
    with one_node.client(session_timeout=30.0) as zk:
        assert zk.client_id is not None
        [session] = [line for line in zk.command(b"cons").splitlines() if f"sid=0x{zk.client_id[0]:x}," in line]
        assert "to=30000," in session


def test_a_killed_leader_is_replaced_and_comes_back_as_a_follower_with_its_data(ensemble3: LocalEnsemble) -> None:
    with ensemble3.client() as zk:
        zk.create("/before")
    old = ensemble3.leader()
    old.kill()
    assert not old.running
    assert old.role() is None
    ensemble3.wait_for_quorum()
    assert ensemble3.leader() is not old
    with ensemble3.client() as zk:
        zk.create("/after")
    old.restart()
    assert follows(old)
    with ensemble3.client(hosts=old.address) as zk:
        zk.sync("/")
        assert {"before", "after"} <= set(zk.get_children("/"))


def test_a_paused_leader_is_replaced_and_its_own_word_is_not_taken_when_it_resumes(ensemble3: LocalEnsemble) -> None:
    old = ensemble3.leader()
    old.pause()
    assert old.running
    assert old.role() is None
    ensemble3.wait_for_quorum()
    new = ensemble3.leader()
    assert new is not old
    old.resume()
    assert ensemble3.leader() is new
    assert follows(old)


def test_a_session_outlives_the_election(ensemble3: LocalEnsemble) -> None:
    with ensemble3.client(session_timeout=20.0) as zk:
        zk.create("/survivor", ephemeral=True)
        before = zk.client_id
        ensemble3.leader().kill()
        ensemble3.wait_for_quorum()
        assert wait_until(lambda: zk.connected, timeout=18.0)
        assert zk.client_id == before
        assert zk.exists("/survivor")


def test_without_a_majority_there_is_no_quorum(ensemble3: LocalEnsemble) -> None:
    killed, paused, left = ensemble3.nodes
    killed.kill()
    paused.pause()
    assert wait_until(lambda: left.role() is None, timeout=20.0)
    with pytest.raises(ServerFailed, match="served no client for 1 s"):
        ensemble3.wait_for_quorum(timeout=1.0)
    with pytest.raises(ServerFailed, match="no leader"):
        ensemble3.leader(timeout=0.0)


def test_whoever_answers_on_the_port_of_a_server_that_is_down_does_not_speak_for_it(one_node: LocalEnsemble) -> None:
    [node] = one_node.nodes
    node.kill()
    with socket.create_server(("127.0.0.1", node.port)) as listener:
        listener.settimeout(5.0)
        stranger = threading.Thread(target=pretend_to_lead, args=(listener,))
        stranger.start()
        assert node.role() is None
        with socket.create_connection(("127.0.0.1", node.port)) as connection:
            connection.sendall(b"srvr")
            assert connection.recv(100) == b"Mode: leader\n"
        stranger.join()
    node.restart()
    one_node.wait_for_quorum()


def pretend_to_lead(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(4)
        connection.sendall(b"Mode: leader\n")


def test_a_restart_of_one_or_all_keeps_data_and_ports(one_node: LocalEnsemble) -> None:
    hosts = one_node.hosts
    with one_node.client() as zk:
        zk.create("/kept", b"1")
    for restart in (one_node.nodes[0].restart, one_node.restart):
        restart()
        assert one_node.hosts == hosts
        one_node.wait_for_quorum()
        with one_node.client() as zk:
            assert zk.get("/kept")[0] == b"1"


def test_a_paused_server_can_be_stopped_and_started_again(one_node: LocalEnsemble) -> None:
    [node] = one_node.nodes
    node.pause()
    node.stop()
    assert not node.running
    with pytest.raises(ServerFailed, match="not running"):
        node.pause()
    node.restart()
    one_node.wait_for_quorum()


def test_close_leaves_no_process_and_no_folder() -> None:
    ensemble = LocalEnsemble(1)
    ensemble.start()
    [node] = ensemble.nodes
    pid, workspace = node.pid, node.folder.parent
    assert workspace.is_dir()
    node.pause()
    ensemble.close()
    ensemble.close()
    assert has_ended(pid)
    assert not workspace.exists()
    with pytest.raises(ServerFailed, match="was not started"):
        _ = ensemble.hosts


def test_a_second_start_is_refused(one_node: LocalEnsemble) -> None:
    with pytest.raises(ServerFailed, match="started before"):
        one_node.start()
    with pytest.raises(ServerFailed, match="already running"):
        one_node.nodes[0].start()


def test_arguments_arrive_in_the_configuration_of_the_server() -> None:
    options = {"durable": False, "tick_time": 0.1, "max_session_timeout": 7.0, "heap": "48m"}
    with LocalEnsemble(1, **options, config={"jute.maxbuffer": 2_000_000, "initLimit": 9}) as ensemble:
        with ensemble.client() as zk:
            told = dict(line.partition("=")[::2] for line in zk.command(b"conf").splitlines())
            environment = zk.command(b"envi")
        written = (ensemble.nodes[0].folder / "zoo.cfg").read_text().splitlines()
    assert (told["tickTime"], told["maxSessionTimeout"], told["maxClientCnxns"]) == ("100", "7000", "0")
    assert {"forceSync=no", "initLimit=9", "jute.maxbuffer=2000000"} <= set(written)
    assert re.search(r"os.memory.max=4\dMB", environment)


def test_an_ensemble_of_no_servers_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        LocalEnsemble(0)


def test_a_port_that_was_taken_meanwhile_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        taken = somebody.getsockname()[1]
        answers = iter([[taken, *_ports.free_ports(2)], _ports.free_ports(3)])
        monkeypatch.setattr("zkfence.testing._ensemble.free_ports", lambda count: next(answers))
        with LocalEnsemble(1) as ensemble:
            assert ensemble.nodes[0].port != taken
            ensemble.wait_for_quorum()
