"""The core against a model of ZooKeeper: thousands of seeded runs with everything that can go wrong."""

from __future__ import annotations

import pytest

from zkfence._core import _queue
from zkfence._core._kinds import EXCLUSIVE, READ, semaphore

from .world import Scenario, Violation, World

SCENARIOS = {
    "exclusive": Scenario([EXCLUSIVE]),
    "crowd": Scenario([EXCLUSIVE], clients=3, workers=7, rounds=2),
    "alone": Scenario([EXCLUSIVE], clients=1, workers=1, rounds=8, faults=0.1),
    "two in turns": Scenario([EXCLUSIVE], clients=2, workers=2, rounds=8, faults=0.005),
    "no outsiders": Scenario([EXCLUSIVE], clients=2, workers=4, outsiders=False, faults=0.03),
    "hostile": Scenario([EXCLUSIVE], clients=2, workers=3, faults=0.1),
    "roll": Scenario([EXCLUSIVE], clients=2, workers=4, ceiling=2),
    "readers and writers": Scenario([EXCLUSIVE, READ, READ], clients=3, workers=5, rounds=3),
    "semaphore": Scenario([semaphore(2)], clients=3, workers=4, rounds=3),
}
MANY = pytest.param(range(1000, 6000), marks=[pytest.mark.long, pytest.mark.timeout(3600)])


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("seeds", [range(40), MANY], ids=["sample", "many"])
@pytest.mark.parametrize("crowd", [1, 16], ids=["by watermark", "by listing"])
def test_tokens_rise_and_no_two_hold_whatever_happens(
    name: str, seeds: range, crowd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_queue, "_CROWD", crowd)
    grants = 0
    for seed in seeds:
        world = World(seed, SCENARIOS[name])
        try:
            world.run()
        except Violation as violation:
            pytest.fail(f"seed {seed}: {violation}\n" + "\n".join(world.log[-60:]))
        grants += len(world.grants)
    assert grants > 3 * len(seeds), "hardly anything was granted: the runs show nothing"
