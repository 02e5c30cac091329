"""MemoryReceiver: the contract in its simplest form, for tests."""

from __future__ import annotations

import threading

from ._receiver import ABSENT, EXISTED, Receiver, Reply, Request
from .words import Action, Mark, Verdict, check_name, with_reply


class MemoryReceiver(Receiver):
    """Keeps marks and data in this process's memory. Nothing survives the process: for tests only."""

    def __init__(self) -> None:
        self._marks: dict[str, Mark] = {}
        self._data: dict[str, bytes] = {}
        self._step = threading.Lock()

    def mark(self, resource: str) -> Mark | None:
        return self._marks.get(check_name(resource, "resource"))

    def _perform(self, request: Request) -> Reply:
        with self._step:
            data = self._data.get(request.resource)
            decision = request.judge(self._marks.get(request.resource), data_present=data is not None)
            mark = decision.mark
            if decision.verdict is Verdict.DUPLICATE:
                assert mark is not None
                return Reply(existed=mark.reply == EXISTED, duplicate=True)
            if request.action is Action.WRITE:
                self._data[request.resource] = request.payload
            elif request.action is Action.DELETE:
                self._data.pop(request.resource, None)
                assert mark is not None
                mark = with_reply(mark, request.stamp, ABSENT if data is None else EXISTED)
            if mark is not None:
                self._marks[request.resource] = mark
            return Reply(data=data if request.action is Action.READ else None, existed=data is not None)
