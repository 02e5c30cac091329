"""Processes that write one resource at the same time: ``file_writers.py race|kill ROOT xattr|sidecar``.

*race*: 50 processes send claims and writes of mixed tokens. Prints a JSON list of the answers,
``[token, action, accepted, invoked, returned]``, by the machine-wide monotonic clock.

*kill*: 30 times, one of several writers is killed with SIGKILL in the middle of its work, and what the store has then
is compared with what was acknowledged. Prints how many acknowledgements there were.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from zkfence_receivers import FileReceiver, Refused, Stamp
from zkfence_receivers._files._root import Keeping
from zkfence_receivers.words import Action, digest_of

RESOURCE: Final = "report"
WRITERS: Final = 50
TURNS: Final = 6

Answers = list[tuple[int, str, bool, float, float]]


def stamp(token: int, op: int) -> Stamp:
    return Stamp(token, "n/l", f"holder-{token}", op=op)


def open_store(root: str, keeping: str) -> FileReceiver:
    return FileReceiver(root, lock_timeout=60, _xattrs=keeping is Keeping.XATTR)


def payload_of(token: int, op: int) -> bytes:
    """Large enough that a torn one would be seen, and it says whose it is."""
    head = f"{token} {op} ".encode()
    return head + hashlib.sha256(head).digest() * 4000


# race


def contend(store: FileReceiver, number: int) -> Answers:
    """Send claims and writes, and note which were accepted, and when.

    The tokens rise with the time, so that many are accepted; each is a little older than that, so that many are not.
    """
    answers: Answers = []
    age = random.Random(number)

    def send(token: int, action: str, request: Callable[[], object]) -> None:
        invoked, accepted = time.monotonic(), True
        try:
            request()
        except Refused:
            accepted = False
        answers.append((token, action, accepted, invoked, time.monotonic()))

    for turn in range(TURNS):
        token = (time.monotonic_ns() // 1000 - age.randrange(20_000)) * 64 + number
        claim, write = stamp(token, 1), stamp(token, 2)
        if turn % 2:  # else a write without a claim before
            send(token, "claim", partial(store.claim, RESOURCE, claim))
        send(token, "write", partial(store.apply_stamped, RESOURCE, b"%d" % token, write))
    return answers


def race(root: str, keeping: str) -> None:
    store = open_store(root, keeping)
    start_read, start_write = os.pipe()
    results = []
    for number in range(WRITERS):
        result_read, result_write = os.pipe()
        if os.fork() == 0:
            os.close(start_write)
            os.read(start_read, 1)  # ends when the parent closes the other side: all begin at once
            with os.fdopen(result_write, "w") as out:
                json.dump(contend(store, number), out)
            os._exit(0)
        os.close(result_write)
        results.append(result_read)
    os.close(start_write)
    answers = []
    for result in results:
        with os.fdopen(result) as lines:
            answers += json.load(lines)
    for _ in results:
        assert os.wait()[1] == 0
    print(json.dumps(answers))


# kill


def write_for_ever(store: FileReceiver, number: int, acknowledgements: int) -> None:
    """Acquire (a newer token than anyone's so far, in place of a lock), claim, write twice, and so on."""
    while True:
        token = time.monotonic_ns() * 16 + number
        for op in (1, 2, 3):
            try:
                if op == 1:
                    store.claim(RESOURCE, stamp(token, op))
                else:
                    store.apply_stamped(RESOURCE, payload_of(token, op), stamp(token, op))
            except Refused:
                os.write(acknowledgements, f"{os.getpid()} 0 0\n".encode())
                break
            os.write(acknowledgements, f"{os.getpid()} {token} {op}\n".encode())


@dataclass
class Acknowledged:
    """What the writers were told, read from their common pipe."""

    pipe: int
    count: int = 0
    highest: int = 0
    written: tuple[int, int] = (0, 0)
    at_work: set[int] = field(default_factory=set)
    _rest: bytes = b""

    def read(self, seconds: float) -> None:
        """Whatever comes within this time."""
        until = time.monotonic() + seconds
        while select.select([self.pipe], [], [], max(0, until - time.monotonic()))[0]:
            *lines, self._rest = (self._rest + os.read(self.pipe, 65536)).split(b"\n")
            for line in lines:
                pid, token, op = map(int, line.split())
                self.at_work.add(pid)
                self.count += token > 0
                self.highest = max(self.highest, token)
                if op > 1:
                    self.written = max(self.written, (token, op))


def check(store: FileReceiver, acknowledged: Acknowledged) -> None:
    with store._locks.hold(f"{RESOURCE}.lock", RESOURCE) as hold:  # mark and data of one moment: others go on writing
        files = store._visit(hold, RESOURCE)
        mark, data = files.mark, files.read()
    assert mark is not None
    assert mark.token >= acknowledged.highest, (mark, acknowledged)
    if data is None:
        assert acknowledged.written == (0, 0)
        return
    token, op = map(int, data.split(b" ", 2)[:2])
    assert data == payload_of(token, op), "the data is not one complete payload"
    assert token == mark.written
    assert (token, op) >= acknowledged.written, "an acknowledged write is lost"
    if mark.token == token:
        assert mark.op == op
        assert mark.digest == digest_of(Action.WRITE, data)


def kill(root: str, keeping: str) -> None:
    store = open_store(root, keeping)
    choose = random.Random(1)
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    acknowledged = Acknowledged(read_end)
    writers: list[int] = []

    def start() -> None:
        pid = os.fork()
        if pid == 0:
            write_for_ever(store, os.getpid() % 16, write_end)
        writers.append(pid)

    try:
        for _ in range(3):
            start()
        for _ in range(30):
            victim = choose.choice(writers)
            deadline = time.monotonic() + 30
            while victim not in acknowledged.at_work:
                assert time.monotonic() < deadline, "a writer gets nothing done"
                acknowledged.read(0.005)
            acknowledged.read(choose.uniform(0, 0.02))  # any moment will do
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
            writers.remove(victim)
            acknowledged.read(0)
            check(store, acknowledged)
            start()
    finally:
        for pid in writers:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    acknowledged.read(0)
    check(store, acknowledged)
    ours = {path.name for path in (Path(root) / ".zkfence").iterdir()}
    assert ours == {"+store.lock", "+store.mark", f"{RESOURCE}.lock", f"{RESOURCE}.mark"}, ours
    print(acknowledged.count)


if __name__ == "__main__":
    {"race": race, "kill": kill}[sys.argv[1]](*sys.argv[2:])
