"""A worker process of test_lost_replies: waits for lock "a", prints its grant as a line of JSON, holds it until stdin
ends."""

from __future__ import annotations

import json
import sys

import zkfence


def main(hosts: str, namespace: str, session_timeout: float) -> None:
    with zkfence.connect(hosts, session_timeout=session_timeout) as client:
        lock = zkfence.FencedLock(client, "a", namespace=namespace)
        with lock.acquire(timeout=60) as grant:
            print(json.dumps({"token": grant.token, "path": grant.path, "session": client.client_id[0]}), flush=True)
            sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
