"""A worker that holds a lock on each of several ensembles, and closes their sessions at a word on its input."""

from __future__ import annotations

import os
import sys

import zkfence
from zkfence import FencedLock
from zkfence._closer import Closer


def main(namespace: str, *hosts: str) -> None:
    grants = [
        FencedLock(zkfence.connect(each, session_timeout=30.0), "a", namespace=namespace).acquire() for each in hosts
    ]
    closer = Closer()
    print("holding", len(grants), flush=True)
    sys.stdin.readline()
    closer.close_sessions(within=1.0)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
