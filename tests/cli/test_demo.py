"""zkfence demo, from its start to its verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from zkfence_receivers import Token

from .conftest import Demo, StartDemo

Told: TypeAlias = "dict[str, Any]"
Acts: TypeAlias = "dict[str, Told]"

A1, A2, B1 = "A1: 40 crates arrived", "A2: 25 crates arrived", "B1: 15 crates left"
BROKEN_STORE = Path(__file__).parent / "broken_store"


@pytest.fixture(scope="module")
def started(start_demo: StartDemo) -> dict[str, Demo]:
    """Both at once: most of their time they wait."""
    return {"files": start_demo("--json"), "redis": start_demo("--receiver", "redis")}


@pytest.fixture(scope="module")
def on_files(started: dict[str, Demo]) -> Demo:
    assert started["files"].wait() == 0, started["files"].errors
    return started["files"]


@pytest.fixture(scope="module")
def told(on_files: Demo) -> Told:
    return json.loads(on_files.output)


@pytest.fixture(scope="module")
def acts(told: Told) -> Acts:
    return {act["act"]: act for act in told["acts"]}


def events(act: dict[str, Any], what: str) -> list[dict[str, Any]]:
    return [event for event in act["events"] if event["what"] == what]


class TestOnFilesAsJson:
    def test_tells_success_and_nothing_but_one_object(self, on_files: Demo, told: Told) -> None:
        assert told["ok"] is True
        assert told["error"] is None
        assert on_files.errors == ""

    def test_leaves_no_process_and_no_file_behind(self, on_files: Demo) -> None:
        assert on_files.leftovers() == []

    def test_without_a_fence_the_acknowledged_update_of_b_is_lost(self, acts: Acts) -> None:
        act = acts["1"]
        assert (act["late_write"], act["report"], act["lost"]) == ("accepted", [A1], [B1])

    def test_fenced_the_late_write_is_refused_and_nothing_is_lost(self, acts: Acts) -> None:
        act = acts["2"]
        assert (act["late_write"], act["report"], act["lost"], act["refused"]) == ("refused", [B1], [], [A1])

    def test_fencing_alone_loses_what_was_written_between_read_and_first_write(self, acts: Acts) -> None:
        act = acts["3a"]
        assert (act["late_write"], act["report"], act["lost"]) == ("accepted", [A1, B1], [A2])
        assert all("mark" in event for event in events(act, "wrote"))

    def test_claim_first_loses_nothing(self, acts: Acts) -> None:
        act = acts["3b"]
        assert (act["late_write"], act["report"], act["lost"], act["refused"]) == ("refused", [A1, B1], [], [A2])

    @pytest.mark.parametrize("number", ["2", "3b"])
    def test_a_refusal_shows_both_tokens(self, acts: Acts, number: str) -> None:
        (refusal,) = events(acts[number], "refused")
        a, b = (event["token_dotted"] for event in events(acts[number], "granted"))
        assert refusal["error"].startswith("StaleToken: ")
        assert a in refusal["error"]
        assert b in refusal["error"]
        assert (refusal["token_dotted"], refusal["mark_dotted"]) == (a, b)

    def test_tokens_rise_over_all_acts(self, told: Told) -> None:
        tokens = [Token.parse(event["token"]) for act in told["acts"] for event in events(act, "granted")]
        assert len(tokens) == 8
        assert tokens == sorted(set(tokens))

    def test_the_lock_passes_on_only_after_the_session_of_the_paused_worker(self, told: Told) -> None:
        for act in told["acts"]:
            seen = [(event["what"], event["worker"]) for event in act["events"]]
            assert (
                seen.index(("stopped", "A"))
                < seen.index(("expired", "A"))
                < seen.index(("granted", "B"))
                < seen.index(("resumed", "A"))
            )

    def test_in_the_third_act_the_late_write_comes_before_the_first_write_of_b(self, acts: Acts) -> None:
        for number in ("3a", "3b"):
            seen = [(event["what"], event["worker"]) for event in acts[number]["events"]]
            assert seen.index(("read", "B")) < seen.index(("resumed", "A")) < seen.index(("wrote", "B"))

    def test_times_never_go_back(self, told: Told) -> None:
        times = [event["at"] for act in told["acts"] for event in act["events"]]
        assert times == sorted(times)


@pytest.fixture(scope="module")
def on_redis(started: dict[str, Demo]) -> Demo:
    assert started["redis"].wait() == 0, started["redis"].errors
    return started["redis"]


class TestOnRedisAsPlainText:
    def test_leaves_no_process_and_no_file_behind(self, on_redis: Demo) -> None:
        assert on_redis.leftovers() == []

    def test_is_lines_of_at_most_80_columns_without_control_codes(self, on_redis: Demo) -> None:
        text = on_redis.output.decode()
        assert all(len(line) <= 80 for line in text.splitlines())
        assert all(character.isprintable() for character in text.replace("\n", ""))
        assert on_redis.errors == ""

    def test_tells_every_act_and_its_verdict(self, on_redis: Demo) -> None:
        text = on_redis.output.decode()
        places = [text.index(f"Act {number}: ") for number in ("1", "2", "3a", "3b")]
        assert places == sorted(places)
        assert text.count("As told. ") == 4
        assert text.count("StaleToken: ") == 2
        assert "B1 is lost!" in text
        assert "A2 is lost!" in text
        assert "A holds 1.0" in text
        assert "B holds 1.1" in text

    def test_ends_with_where_to_go_next(self, on_redis: Demo) -> None:
        assert "README" in on_redis.output.decode().splitlines()[-1]


@pytest.fixture(scope="module")
def on_broken_store(start_demo: StartDemo) -> Demo:
    demo = start_demo("--json", "--keep", PYTHONPATH=str(BROKEN_STORE))
    assert demo.wait() == 1, demo.errors
    return demo


@pytest.fixture(scope="module")
def broken(on_broken_store: Demo) -> Acts:
    told = json.loads(on_broken_store.output)
    assert told["ok"] is False
    return {act["act"]: act for act in told["acts"]}


class TestOnABrokenStore:
    """The verdict is read from the store, whatever was acknowledged and refused on the way."""

    def test_the_honest_acts_go_as_told(self, broken: Acts) -> None:
        assert [number for number in broken if broken[number]["as_told"]] == ["1", "3a"]

    def test_a_store_that_takes_stale_writes_is_found_out(self, broken: Acts) -> None:
        assert broken["2"]["lost"] == [B1]

    def test_a_store_that_acknowledges_and_does_nothing_is_found_out(self, broken: Acts) -> None:
        assert broken["3b"]["late_write"] == "refused"
        assert broken["3b"]["lost"] == [B1]

    def test_the_folder_that_is_kept_holds_what_was_told(self, on_broken_store: Demo, broken: Acts) -> None:
        (folder,) = on_broken_store.leftovers()
        assert isinstance(folder, Path)
        assert on_broken_store.errors == f"The reports are in {folder}\n"
        for act in broken.values():
            assert (folder / act["resource"]).read_text().splitlines() == act["report"]
