"""A worker process of test_tokens_across_processes: several threads acquire and release one lock.

Reads lines from stdin: ``run SECONDS`` contends for that long and then prints one line of JSON, a list of
``[token, held from, held until]`` by the machine-wide monotonic clock.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import zkfence


def contend(client: zkfence.Client, namespace: str, until: float, held: list[tuple[int, float, float]]) -> None:
    lock = zkfence.FencedLock(client, "a", namespace=namespace)
    while time.monotonic() < until:
        with lock.acquire(timeout=60) as grant:
            held_from = time.monotonic()
            held.append((grant.token, held_from, time.monotonic()))


def main(hosts: str, namespace: str, threads: int) -> None:
    with zkfence.connect(hosts, session_timeout=20.0) as client:
        print("ready", flush=True)
        for line in sys.stdin:
            until = time.monotonic() + float(line.removeprefix("run "))
            held: list[tuple[int, float, float]] = []
            contenders = [
                threading.Thread(target=contend, args=(client, namespace, until, held)) for _ in range(threads)
            ]
            for contender in contenders:
                contender.start()
            for contender in contenders:
                contender.join()
            print(json.dumps(held), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
