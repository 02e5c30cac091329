"""Many writers of one resource of FileReceiver, as threads and as processes, and writers that are killed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from zkfence_receivers import FileReceiver
from zkfence_receivers._files._root import Keeping

SCRIPT = Path(__file__).with_name("file_writers.py")

Answers = list[tuple[int, str, bool, float, float]]


@pytest.fixture(scope="module")
def writers() -> ModuleType:
    """The script as a module: its writers run as threads, too."""
    spec = importlib.util.spec_from_file_location("file_writers", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["file_writers"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=list(Keeping))
def keeping(request: pytest.FixtureRequest) -> Keeping:
    return Keeping(request.param)


def check_order(answers: Answers) -> None:
    """No request was accepted that was sent after one with a higher token had been accepted."""
    accepted = [answer for answer in answers if answer[2]]
    by_return = sorted(accepted, key=lambda answer: answer[4])
    highest = returned = 0
    for token, action, _, invoked, _ in sorted(accepted, key=lambda answer: answer[3]):
        while by_return[returned][4] < invoked:
            highest = max(highest, by_return[returned][0])
            returned += 1
        assert token >= highest, f"the {action} of {token} was accepted after {highest}"


def check_outcome(store: FileReceiver, answers: Answers) -> None:
    check_order(answers)
    accepted = [(token, action) for token, action, accepted, *_ in answers if accepted]
    mark = store.mark("report")
    assert mark is not None
    assert mark.token == max(token for token, _ in accepted)
    assert mark.written == max(token for token, action in accepted if action == "write")
    assert (Path(store._root.data.path) / "report").read_bytes() == b"%d" % mark.written
    assert 20 < len(accepted) < len(answers) - 20, "too few of one kind to tell anything"


def test_the_check_finds_what_it_is_there_for() -> None:
    first = (2, "write", True, 0.0, 1.0)
    check_order([first, (1, "write", True, 0.5, 2.0)])  # sent before the other one had returned: either order is right
    check_order([first, (1, "write", False, 1.5, 2.0)])
    with pytest.raises(AssertionError):
        check_order([first, (1, "write", True, 1.5, 2.0)])


def test_fifty_processes_never_get_an_older_token_accepted(keeping: Keeping, tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    run = subprocess.run(
        [sys.executable, str(SCRIPT), "race", root, keeping],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    with FileReceiver(root) as store:
        check_outcome(store, [tuple(answer) for answer in json.loads(run.stdout)])  # type: ignore[misc]


def test_fifty_threads_never_get_an_older_token_accepted(keeping: Keeping, tmp_path: Path, writers: ModuleType) -> None:
    with writers.open_store(str(tmp_path / "store"), keeping) as store:
        answers: Answers = []
        start = threading.Barrier(writers.WRITERS)

        def contend(number: int) -> None:
            start.wait(30)
            answers.extend(writers.contend(store, number))

        threads = [threading.Thread(target=contend, args=(number,)) for number in range(writers.WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in threads)
        check_outcome(store, answers)
        assert store._locks._mutexes._users == {}


def test_no_kill_loses_what_was_acknowledged(keeping: Keeping, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(SCRIPT), "kill", str(tmp_path / "store"), keeping],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 30
