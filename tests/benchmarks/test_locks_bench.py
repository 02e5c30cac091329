"""`make bench-locks` measures what it says, and tells all of it. How fast anything is, no test says."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks._locks._cell import Cell
from benchmarks._locks._contender import KAZOO, ZKFENCE
from benchmarks._locks._received import received_from
from benchmarks._locks._results import Results
from benchmarks._locks._row import Row
from benchmarks._locks._worker_process import WorkerFailed, WorkerProcess

ROOT = Path(__file__).parents[2]
ALONE, TWO = Row.parse("uncontended-1"), Row.parse("contended-2")


def test_a_quick_run_tells_every_figure_of_every_contender(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.locks", "--quick", "--seconds", "0.1", "--only", "zkfence,kazoo"]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]

    ran = subprocess.run(
        [*command, "--rows", f"{ALONE.name},{TWO.name}", "--json", "out/results.json", "--plot", "out/plot.png"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    for told in (ALONE.title, TWO.title, ZKFENCE.title, KAZOO.title, "zkfence / kazoo", "≥ 1.5", "no fsync"):
        assert told in ran.stdout
    document = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert {"processor", "Python", "Java", "ZooKeeper", "kazoo", "measured"} <= document["facts"].keys()
    (results,) = document["results"]
    assert results["servers"] == 1
    for row in (ALONE, TWO):
        assert results["rows"][row.name].keys() == {ZKFENCE.name, KAZOO.name}
        for series in results["rows"][row.name].values():
            assert series["failures"] == []
            assert series["rate"] > 0
            assert series["cpu_per_cycle"] > 0
            assert series["bytes_per_cycle"] > 100  # the replies to a create and a delete alone have more
            assert len(series["rounds"]) == 1
    assert (tmp_path / "out" / "plot.png").exists() or find_spec("matplotlib") is None


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1"], ids=["IPv4", "as Java does it"])
def test_what_a_connection_received_is_counted_to_the_byte(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(family) as client:
        port = server.getsockname()[1]
        client.connect((address, port))
        peer, _ = server.accept()
        with peer:
            before = received_from(port)
            peer.sendall(b"x" * 12_345)
            client.recv(12_345, socket.MSG_WAITALL)

            after = received_from(port)

        assert before.keys() == after.keys() == {client.getsockname()[1]}
        assert sum(after.values()) - sum(before.values()) == 12_345


def test_ratios_compare_rates_of_the_same_round() -> None:
    results = Results.empty(1, "1 server", [ZKFENCE, KAZOO], [ALONE])
    ours, theirs = results.series[ALONE, ZKFENCE], results.series[ALONE, KAZOO]
    # The machine was ten times slower in the second round, and theirs failed in the third.
    ours.cells += [_cell(200), _cell(30), _cell(900)]
    theirs.cells += [_cell(100), _cell(10), None]

    ratio = results.ratio(ALONE, ZKFENCE, KAZOO)

    assert ratio is not None
    assert (ratio.least, ratio.median, ratio.most) == (2.0, 2.5, 3.0)


def test_a_worker_that_ends_is_told_with_its_last_words(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo no session >&2; exit 1"]

    with (
        WorkerProcess(command, tmp_path / "log", stays=False) as worker,
        pytest.raises(WorkerFailed, match="has ended\nno session"),
    ):
        worker.ask("start", timeout=10)


def _cell(cycles: int) -> Cell:
    return Cell(cycles=cycles, seconds=1.0, cpu=0.5, received=1000)
