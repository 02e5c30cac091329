"""Tokens, over processes and servers: unique, rising, and no two live holders at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from zkfence.testing import LocalEnsemble

PROCESSES, THREADS = 4, 8
WORKER = Path(__file__).with_name("contending_process.py")

Held = tuple[int, float, float]  # token, held from, held until


@contextmanager
def workers(hosts: str, namespace: str) -> Iterator[list[subprocess.Popen[str]]]:
    command = [sys.executable, str(WORKER), hosts, namespace, str(THREADS)]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
    ]
    try:
        for worker in started:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        yield started
    finally:
        for worker in started:
            worker.communicate(timeout=60)


def run(started: list[subprocess.Popen[str]], seconds: float) -> list[Held]:
    for worker in started:
        assert worker.stdin is not None
        worker.stdin.write(f"run {seconds}\n")
        worker.stdin.flush()
    held: list[Held] = []
    for worker in started:
        assert worker.stdout is not None
        held += [tuple(each) for each in json.loads(worker.stdout.readline())]
    return sorted(held, key=lambda each: each[1])


@pytest.mark.parametrize("seconds", [6.0, pytest.param(60.0, marks=[pytest.mark.long, pytest.mark.timeout(400)])])
def test_tokens_rise_over_processes_and_over_the_deletion_of_the_lock(
    zkfence_ensemble3: LocalEnsemble, zkfence_namespace: str, seconds: float
) -> None:
    with workers(zkfence_ensemble3.hosts, zkfence_namespace) as started, zkfence_ensemble3.client() as zk:
        before = run(started, seconds / 2)
        delete_whole_lock(zk, f"{zkfence_namespace}/locks/a")
        after = run(started, seconds / 2)
    held = before + after
    tokens = [token for token, _, _ in held]
    print(f"{len(tokens)} grants in {seconds:g} s, {len(before)} of them before the lock was deleted")
    assert len(before) > 20
    assert len(after) > 20
    assert len(set(tokens)) == len(tokens), "a token was issued twice"
    assert tokens == sorted(tokens), "a later grant has a lower token"
    assert all(until <= later for (_, _, until), (_, later, _) in pairwise(held)), "two held at once"
    assert tokens[len(before)] >> 31 == (tokens[0] >> 31) + 1, "the deleted lock came back in the next epoch"


def delete_whole_lock(zk: KazooClient, path: str) -> None:
    zk.sync(path)
    assert all(not zk.get_children(f"{path}/{epoch}") for epoch in zk.get_children(path)), "the lock is idle"
    zk.delete(path, recursive=True)
