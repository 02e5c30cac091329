"""The program of a worker process: ``python -m zkfence.cli._demo._program``.

It is told what to do on its standard input, one JSON object a line, and answers each on its standard output. The first
line is its `Assignment`. At the end of its input it is gone at once: nobody is left to work for.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import IO, Any, Final, TypeAlias

from zkfence import FencedLock, Grant, Stamp, ZkfenceError, connect
from zkfence_receivers import Handle, StaleToken

from ._assignment import Assignment
from ._report import Lines, body_of, lines_of
from ._store import Store, open_store

Answer: TypeAlias = "dict[str, Any]"


class Program:
    """What a worker can do, and what it has in its hands. Every method is one order; its result is the answer."""

    def __init__(self, assignment: Assignment, lock: FencedLock, store: Store) -> None:
        self._resource = assignment.resource
        self._lock = lock
        self._store = store
        self._grant: Grant | None = None
        self._handle: Handle | None = None
        self._stamp: Stamp | None = None
        self._draft: Lines = ()
        self.orders: Final[dict[str, Callable[..., Answer]]] = {
            "acquire": self._acquire,
            "claim": self._claim,
            "read": self._read,
            "peek": self._peek,
            "stamp": self._take_stamp,
            "write": self._write,
            "put": self._put,
            "send": self._send,
            "release": self._release,
        }

    def _acquire(self) -> Answer:
        self._grant = self._lock.acquire()
        return {"token": str(self._grant.token), "path": self._grant.path}

    def _claim(self) -> Answer:
        self._handle = self._store.receiver.claim(self._resource, self._granted)
        return {}

    def _read(self, line: str) -> Answer:
        """Through the handle of a claim."""
        assert self._handle is not None
        return self._drafted(self._handle.read(), line)

    def _peek(self, line: str) -> Answer:
        """Past the receiver: without a claim."""
        return self._drafted(self._store.peek(self._resource), line)

    def _take_stamp(self) -> Answer:
        """For a request that is on its way from now on: whatever this process still finds out comes too late."""
        self._stamp = self._granted.stamp(self._resource)
        return {}

    def _write(self) -> Answer:
        """Through the handle of a claim."""
        assert self._handle is not None
        self._handle.write(body_of(self._draft))
        return {}

    def _put(self) -> Answer:
        """Past the receiver: without any fence."""
        self._store.put(self._resource, body_of(self._draft))
        return {}

    def _send(self) -> Answer:
        """The request that was stamped before."""
        assert self._stamp is not None
        self._store.receiver.apply_stamped(self._resource, body_of(self._draft), self._stamp)
        return {}

    def _release(self) -> Answer:
        self._granted.release()
        return {}

    @property
    def _granted(self) -> Grant:
        assert self._grant is not None
        return self._grant

    def _drafted(self, body: bytes | None, line: str) -> Answer:
        found = lines_of(body)
        self._draft = (*found, line)
        return {"found": found, "draft": self._draft}


def _obey(program: Program, order: dict[str, Any]) -> Answer:
    do = program.orders[order.pop("do")]
    try:
        return {"done": True, **do(**order)}
    except StaleToken as error:
        return {"done": False, "refused": f"StaleToken: {error}"}
    except ZkfenceError as error:
        return {"done": False, "failed": f"{type(error).__name__}: {error}"}


def _listen(orders: queue.SimpleQueue[str]) -> None:
    """In a thread of its own: the end of the input is noticed even while the worker waits for its lock."""
    for line in sys.stdin:
        orders.put(line)
    os._exit(0)


def _tell(answers: IO[str], answer: Answer) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing that a library prints gets among the answers
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    orders: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()

    assignment = Assignment.from_json(orders.get())
    with (
        open_store(assignment.store) as store,
        connect(assignment.hosts, session_timeout=assignment.session_timeout) as zk,
    ):
        lock = FencedLock(zk, assignment.lock, namespace=assignment.namespace, info=assignment.name)
        program = Program(assignment, lock, store)
        _tell(answers, {"done": True})
        while (order := json.loads(orders.get()))["do"] != "leave":
            _tell(answers, _obey(program, order))


if __name__ == "__main__":
    main()
