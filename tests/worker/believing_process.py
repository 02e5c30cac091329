"""A worker process of test_deadline: uses three grants without a pause, until each of them says that it is lost.

Prints ``holding``, and later one line of JSON: for each way to use a grant, whether the first use after a gap of a
session timeout was refused.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import zkfence
from zkfence import _clock
from zkfence_receivers import MemoryReceiver


def main(hosts: str, namespace: str, session_timeout: float) -> None:
    with zkfence.connect(hosts, session_timeout=session_timeout) as client:
        grants = {name: zkfence.FencedLock(client, name, namespace=namespace).acquire() for name in "abc"}
        handle = MemoryReceiver().claim("r", grants["c"])
        uses: dict[str, Callable[[], object]] = {
            "check": grants["a"].check,
            "stamp": lambda: grants["b"].stamp("r"),
            "write": lambda: handle.write(b"1"),
        }
        print("holding", flush=True)
        refused: dict[str, bool] = {}
        before = _clock.now()
        while len(refused) < len(uses):
            last, before = before, _clock.now()
            for name in uses.keys() - refused.keys():
                try:
                    uses[name]()
                except zkfence.LockLost:
                    refused[name] = True
                else:
                    if before - last > session_timeout:
                        refused[name] = False
        print(json.dumps(refused), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
