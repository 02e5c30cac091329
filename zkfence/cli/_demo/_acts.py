"""The story."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ._audience import Heading
from ._scene import Scene
from ._verdict import LateWrite, Outcome

A1: Final = "A1: 40 crates arrived"
A2: Final = "A2: 25 crates arrived"
B1: Final = "B1: 15 crates left"


@dataclass(frozen=True, slots=True)
class Act:
    heading: Heading
    resource: str
    play: Callable[[Scene], None]


def no_fence(scene: Scene) -> None:
    a, b = scene.a, scene.b
    scene.acquire(a)
    scene.peek(a, A1)
    scene.queue(b)
    with scene.stopped(a):
        scene.granted(b)
        scene.peek(b, B1)
        scene.put(b)
        scene.wake(a, "put")
    scene.release(b)


def fenced(scene: Scene) -> None:
    a, b = scene.a, scene.b
    scene.acquire(a)
    scene.claim(a)
    scene.read(a, A1)
    scene.stamp(a)
    scene.queue(b)
    with scene.stopped(a):
        scene.granted(b)
        scene.claim(b)
        scene.read(b, B1)
        scene.write(b)
        scene.wake(a, "send")
    scene.release(b)


def fencing_alone(scene: Scene) -> None:
    a, b = scene.a, scene.b
    scene.acquire(a)
    scene.peek(a, A1)
    scene.stamp(a)
    scene.send(a)
    scene.peek(a, A2)
    scene.stamp(a)
    scene.queue(b)
    with scene.stopped(a):
        scene.granted(b)
        scene.peek(b, B1)
        scene.wake(a, "send")  # the store has not heard of B yet
        scene.stamp(b)
        scene.send(b)
    scene.release(b)


def claim_first(scene: Scene) -> None:
    a, b = scene.a, scene.b
    scene.acquire(a)
    scene.claim(a)
    scene.read(a, A1)
    scene.write(a)
    scene.read(a, A2)
    scene.stamp(a)
    scene.queue(b)
    with scene.stopped(a):
        scene.granted(b)
        scene.claim(b)
        scene.read(b, B1)
        scene.wake(a, "send")
        scene.write(b)
    scene.release(b)


ACTS: Final = (
    Act(
        Heading(
            "1",
            "a lock, and no fence",
            "Both take the lock before they touch the report. A is paused while it has it.",
            "The lock was right all the time. B1 is lost: nobody told the store.",
            Outcome(LateWrite.ACCEPTED, acknowledged=("A1", "B1"), lost=("B1",)),
        ),
        "report-1",
        no_fence,
    ),
    Act(
        Heading(
            "2",
            "the same, fenced",
            "Every write carries a token. A is paused when its write is already on its way.",
            "The store had heard of a newer token, and refused. B1 stands.",
            Outcome(LateWrite.REFUSED, acknowledged=("B1",), lost=()),
        ),
        "report-2",
        fenced,
    ),
    Act(
        Heading(
            "3a",
            "fencing alone",
            "The subtle one: A wakes up when B has read, but not written. Mind the mark.",
            "Every write carried a token. A2 is lost: B had read too early.",
            Outcome(LateWrite.ACCEPTED, acknowledged=("A1", "A2", "B1"), lost=("A2",)),
        ),
        "report-3a",
        fencing_alone,
    ),
    Act(
        Heading(
            "3b",
            "claim first",
            "The same moment, but B claims the report before it reads. Mind the mark again.",
            "After B's claim, A could change nothing. Nothing acknowledged is lost.",
            Outcome(LateWrite.REFUSED, acknowledged=("A1", "B1"), lost=()),
        ),
        "report-3b",
        claim_first,
    ),
)
