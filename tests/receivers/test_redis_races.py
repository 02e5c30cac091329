"""RedisReceiver under many writers, in threads and processes, and with a server that is killed among them.

Run as a program it is one of the processes: ``test_redis_races.py PORT THREADS SEED SECONDS`` prints what it did.
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from zkfence_receivers import OutcomeUnknown, RedisReceiver, StaleToken, Stamp, StoreFailed, Token, TokenCollision
from zkfence_receivers.testing import LocalRedis

PREFIX, RESOURCE = "races", "contended"
LOWEST = 2**53 - 1000  # doubles cannot tell the tokens above 2**53 apart
SPREAD = 6000


@dataclass(frozen=True, slots=True)
class Event:
    """One request: a write, or a claim; times are of the machine's monotonic clock, the same in every process."""

    token: int
    holder: str
    write: bool
    invoked: float
    returned: float
    accepted: bool
    refused_for: int | None  # the mark's token in a refusal


def writer(client: redis.Redis, chance: random.Random, until: float) -> list[Event]:
    """Send requests with tokens from a window that moves up with time, in any order, each from a holder of its own."""
    store = RedisReceiver(client, prefix=PREFIX)
    events = []
    started = time.monotonic()
    while (invoked := time.monotonic()) < until:
        progress = (invoked - started) / (until - started)
        token = Token(LOWEST + int(progress * SPREAD) + chance.randrange(60))
        stamp = Stamp(token, "n/l", uuid.UUID(int=chance.getrandbits(128)).hex, op=1)
        write = chance.random() < 0.7
        refused_for = None
        try:
            if write:
                store.apply_stamped(RESOURCE, f"{token} {stamp.holder}".encode(), stamp)
            else:
                store.claim(RESOURCE, stamp)
        except (StaleToken, TokenCollision) as refusal:
            refused_for = refusal.mark and int(refusal.mark.token)
        returned = time.monotonic()
        events.append(Event(int(token), stamp.holder, write, invoked, returned, refused_for is None, refused_for))
    return events


def write_in_threads(port: int, threads: int, seed: int, seconds: float) -> list[Event]:
    until = time.monotonic() + seconds
    with redis.Redis(port=port) as client, ThreadPoolExecutor(threads) as pool:
        runs = [pool.submit(writer, client, random.Random(seed * 1000 + number), until) for number in range(threads)]
        return [event for run in runs for event in run.result()]


def late_ones(accepted: list[Event]) -> list[Event]:
    """The events that were accepted although one with a higher token had been accepted before they were invoked."""
    late = []
    highest = 0
    returns = iter(sorted(accepted, key=lambda event: event.returned))
    returned = next(returns, None)
    for event in sorted(accepted, key=lambda event: event.invoked):
        while returned is not None and returned.returned < event.invoked:
            highest = max(highest, returned.token)
            returned = next(returns, None)
        if event.token < highest:
            late.append(event)
    return late


def test_the_search_for_late_ones_finds_them() -> None:
    def event(token: int, invoked: float, returned: float) -> Event:
        return Event(token, "h", True, invoked, returned, True, None)

    early, beside, late = event(9, 1.0, 2.0), event(5, 1.5, 3.0), event(8, 2.5, 2.6)
    assert late_ones([late, beside, early]) == [late]
    assert late_ones([early, beside]) == []


def test_fifty_writers_in_threads_and_processes_never_get_an_older_token_in(zkfence_redis: LocalRedis) -> None:
    seconds = 2.0
    command = [sys.executable, __file__, str(zkfence_redis.port), "8"]
    processes = [
        subprocess.Popen([*command, str(seed), str(seconds)], stdout=subprocess.PIPE, text=True) for seed in range(1, 4)
    ]
    events = write_in_threads(zkfence_redis.port, threads=26, seed=0, seconds=seconds)
    for process in processes:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        own = [Event(**fields) for fields in json.loads(output)]
        assert len(own) > 50
        events += own

    accepted = [event for event in events if event.accepted]
    refused = [event for event in events if not event.accepted]
    assert len(accepted) > 200
    assert len(refused) > 200
    assert late_ones(accepted) == []

    # The mark that refused a request was that of a request which had been sent by then.
    sent = {event.token: event.invoked for event in sorted(events, key=lambda event: -event.invoked)}
    for event in refused:
        assert event.refused_for is not None
        assert event.refused_for >= event.token
        assert sent[event.refused_for] < event.returned

    with zkfence_redis.client() as client:
        mark = RedisReceiver(client, prefix=PREFIX).mark(RESOURCE)
        assert mark is not None
        assert mark.token == max(event.token for event in accepted)
        last = max((event for event in accepted if event.write), key=lambda event: event.token)
        assert mark.written == last.token
        assert client.get(f"{PREFIX}:{{{RESOURCE}}}:data") == f"{last.token} {last.holder}".encode()


class Acknowledged:
    """What the store has acknowledged: the highest claim, the last write."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.claimed = 0
        self.written = (0, 0)  # token and op, which is what the data says
        self.writes = 0

    def claim(self, token: int) -> None:
        with self._lock:
            self.claimed = max(self.claimed, token)

    def write(self, token: int, op: int) -> None:
        with self._lock:
            self.written = max(self.written, (token, op))
            self.writes += 1

    def read(self) -> tuple[int, tuple[int, int]]:
        with self._lock:
            return self.claimed, self.written


def wait_until(condition: Callable[[], bool], timeout: float = 20.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def work(client: redis.Redis, tokens: Iterator[int], acknowledged: Acknowledged, stop: threading.Event) -> None:
    """Claim with a token of one's own, write a few times, and begin again; whatever happens to the server."""
    store = RedisReceiver(client, prefix="killed")
    while not stop.is_set():
        token = next(tokens)
        stamp = Stamp(Token(token), "n/l", f"holder-{token}", op=1)
        try:
            handle = store.claim(RESOURCE, stamp)
            acknowledged.claim(token)
            for op in range(2, 6):
                handle.write(f"{token} {op}".encode())
                acknowledged.write(token, op)
        except StaleToken:
            pass
        except (OutcomeUnknown, StoreFailed):
            stop.wait(0.01)  # the server is down


def test_a_killed_server_has_every_acknowledged_mark_and_write() -> None:
    acknowledged, stop, tokens = Acknowledged(), threading.Event(), itertools.count(2**53)
    with (
        LocalRedis() as server,
        server.client(retry=Retry(NoBackoff(), 0)) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        workers = [pool.submit(work, client, tokens, acknowledged, stop) for _ in range(4)]
        try:
            for _ in range(6):
                enough = acknowledged.writes + 30
                wait_until(lambda enough=enough: acknowledged.writes >= enough)
                server.kill()
                claimed, written = acknowledged.read()
                server.restart()
                data = client.get(f"killed:{{{RESOURCE}}}:data")  # before the mark: the workers go on
                mark = RedisReceiver(client, prefix="killed").mark(RESOURCE)
                assert mark is not None
                assert data is not None
                assert mark.token >= claimed
                token, op = map(int, data.split())
                assert (token, op) >= written
                assert mark.written is not None
                assert mark.written >= token  # the data never goes before its mark
                for stale in (claimed - 1, written[0] - 1):
                    with pytest.raises(StaleToken):
                        RedisReceiver(client, prefix="killed").apply_stamped(
                            RESOURCE, b"stale", Stamp(Token(stale), "n/l", "late", op=1)
                        )
        finally:
            stop.set()
        for worker in workers:
            worker.result(30)


def test_mark_ten_then_killed_then_nine_is_refused() -> None:
    with LocalRedis() as server, server.client() as client:
        store = RedisReceiver(client)
        store.claim("r", Stamp(Token(10), "n/l", "new", op=1))
        server.kill()
        server.restart()
        with pytest.raises(StaleToken):
            store.apply_stamped("r", b"late", Stamp(Token(9), "n/l", "old", op=1))
        with pytest.raises(StaleToken):
            store.claim("r", Stamp(Token(9), "n/l", "old", op=1))
        assert client.exists("zkfence:{r}:data") == 0


if __name__ == "__main__":
    port, threads, seed, seconds = sys.argv[1:]
    print(json.dumps([asdict(event) for event in write_in_threads(int(port), int(threads), int(seed), float(seconds))]))
