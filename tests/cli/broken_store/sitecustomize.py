"""Breaks `FileReceiver` in every process that finds this module on its path: a store that keeps no promise.

It takes whatever is sent for report-2, and acknowledges B's write to report-3b without doing it.
"""

from dataclasses import replace

from zkfence_receivers import FileReceiver
from zkfence_receivers._receiver import Reply, Request
from zkfence_receivers.words import Action

_honest = FileReceiver._perform


def _broken(self: FileReceiver, request: Request) -> Reply:
    mark, stamp = self.mark(request.resource), request.stamp
    if mark is not None and request.resource == "report-2" and stamp.token < mark.token:
        stamp = replace(stamp, token=mark.token, holder=mark.holder, op=mark.op + 1)
    if mark is not None and request.resource == "report-3b" and request.action is Action.WRITE:
        a_wrote_before = mark.written is not None
        if a_wrote_before and stamp.token == mark.token > mark.written:
            return Reply()
    return _honest(self, replace(request, stamp=stamp))


FileReceiver._perform = _broken
