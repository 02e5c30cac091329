"""The worker of a Python contender: ``python -m benchmarks._locks._worker CONTENDER HOSTS SESSION_TIMEOUT``.

Commands, a line each, and a line of JSON for each as the answer:

    start ROW LOCK_NAME     connect; everybody ready, in a contended row on the way into the line
    go                      begin
    sample                  cycles so far, this process's CPU time, and when that was, both in seconds
    stop                    end the session, and in Python the process
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

from ._contender import AIO, KAZOO, RAW, STOCK, ZKFENCE
from ._crowd import Crowd, LockClient, ThreadCrowd
from ._row import Row


def _client(contender: str) -> Callable[[str, float], LockClient]:
    """Imports what the contender needs, and nothing else into its process."""
    if contender == KAZOO.name:
        from ._kazoo import KazooLocks

        return KazooLocks
    if contender == RAW.name:
        from ._raw import RawLocks

        return RawLocks
    from ._zkfence import ConnectedFencedLocks, StockFencedLocks

    return {ZKFENCE.name: ConnectedFencedLocks, STOCK.name: StockFencedLocks}[contender]


def _crowd(contender: str, hosts: str, session_timeout: float, row: Row, lock_name: str) -> Crowd:
    if contender == AIO.name:
        from ._tasks import TaskCrowd

        return TaskCrowd(hosts, session_timeout, row, lock_name)
    return ThreadCrowd(_client(contender)(hosts, session_timeout), row, lock_name)


def _answer(**values: object) -> None:
    print(json.dumps(values), flush=True)  # noqa: T201  # standard output is the channel


def main(contender: str, hosts: str, session_timeout: str) -> None:
    crowd: Crowd | None = None
    for line in sys.stdin:
        match line.split(), crowd:
            case ["start", row, lock_name], None:
                crowd = _crowd(contender, hosts, float(session_timeout), Row.parse(row), lock_name)
                crowd.start()
                _answer()
            case ["go"], Crowd():
                crowd.go()
                _answer()
            case ["sample"], Crowd():
                _answer(cycles=crowd.cycles, seconds=time.monotonic(), cpu=time.process_time(), failure=crowd.failure)
            case ["stop"], Crowd():
                crowd.stop()
                _answer()
                break
            case _:
                raise ValueError(line)
    # Threads may still wait for a lock that they will never get: not one of them is waited for.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
