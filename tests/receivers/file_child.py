"""A process of its own for the tests of FileReceiver: ``file_child.py WHAT ROOT ARGUMENTS…``."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from zkfence_receivers import FileReceiver, Refused, Stamp


def stop_in_a_write(root: str, resource: str, token: str) -> None:
    store = FileReceiver(root)
    rename = os.rename

    def stopping(*arguments: object, **options: object) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
        rename(*arguments, **options)  # type: ignore[arg-type]

    os.rename = stopping  # type: ignore[assignment]
    store.apply_stamped(resource, b"from the child", Stamp(int(token), op=3))
    print("written", flush=True)


def stop_before_a_write(root: str, resource: str, token: str) -> None:
    handle = FileReceiver(root).claim(resource, Stamp(int(token), op=1))
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        handle.write(b"late")
    except Refused as error:
        mark = None if error.mark is None else error.mark.token
        print(json.dumps({"error": type(error).__name__, "token": error.stamp.token, "mark": mark}), flush=True)


def _in_a_thread_that_holds(store: FileReceiver, resource: str) -> None:
    held, never = threading.Event(), threading.Event()

    def hold() -> None:
        with store._locks.hold(f"{resource}.lock", resource):
            held.set()
            never.wait()

    threading.Thread(target=hold, daemon=True).start()
    assert held.wait(10)


def fork_with_a_lock(root: str, resource: str) -> None:
    store = FileReceiver(root)
    _in_a_thread_that_holds(store, resource)
    child = os.fork()
    if child == 0:
        # The pipe that the parent of both reads must end with the parent alone.
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        signal.pause()
    print(child, flush=True)
    signal.pause()


def use_after_fork(root: str, resource: str) -> None:
    store = FileReceiver(root)
    held, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        with store._locks.hold(f"{resource}.lock", resource):
            held.set()
            go_on.wait()
        done.set()

    threading.Thread(target=hold).start()
    assert held.wait(10)
    child = os.fork()
    if child == 0:
        store.claim(resource, Stamp(7, op=1)).write(b"by the child")
        os._exit(0)
    go_on.set()
    assert done.wait(10)
    status = os.waitpid(child, 0)[1]
    assert status == 0, status
    assert store.claim(resource, Stamp(8, op=1)).read() == b"by the child"
    print("the child wrote", flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1].replace("-", "_")](*sys.argv[2:])
