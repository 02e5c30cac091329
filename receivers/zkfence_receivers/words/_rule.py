"""The rule: which requests a destination accepts. One pure function, obeyed by every receiver.

Receivers that cannot call Python (a Lua script, SQL) are tested against the same table, ``admit_vectors.json``.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from enum import StrEnum

from ._errors import (
    OutOfOrder,
    ReadOnlyStamp,
    Refused,
    StaleToken,
    TokenCollision,
    Unfenced,
    WrongLock,
    WrongNamespace,
)
from ._mark import REPLY_LIMIT, Mark
from ._stamp import Mode, Stamp


class Action(StrEnum):
    """What a request wants."""

    CLAIM = "claim"
    ADOPT = "adopt"  # a claim of data that has no mark
    READ = "read"
    WRITE = "write"
    DELETE = "delete"


CLAIMS = frozenset({Action.CLAIM, Action.ADOPT})


class Verdict(StrEnum):
    ADMITTED = "admitted"
    DUPLICATE = "duplicate"
    STALE_TOKEN = "stale-token"
    TOKEN_COLLISION = "token-collision"
    OUT_OF_ORDER = "out-of-order"
    WRONG_NAMESPACE = "wrong-namespace"
    WRONG_LOCK = "wrong-lock"
    READ_ONLY = "read-only"
    UNFENCED = "unfenced"


_REFUSALS: dict[Verdict, type[Refused]] = {
    Verdict.STALE_TOKEN: StaleToken,
    Verdict.TOKEN_COLLISION: TokenCollision,
    Verdict.OUT_OF_ORDER: OutOfOrder,
    Verdict.WRONG_NAMESPACE: WrongNamespace,
    Verdict.WRONG_LOCK: WrongLock,
    Verdict.READ_ONLY: ReadOnlyStamp,
    Verdict.UNFENCED: Unfenced,
}


@dataclass(frozen=True, slots=True)
class Decision:
    """``mark`` is the mark that has to stand when the request is done: the next one where the request was admitted
    (``None`` for a read of a resource that nobody has claimed), the present one otherwise."""

    verdict: Verdict
    mark: Mark | None


def digest_of(action: Action, payload: bytes) -> str:
    """What tells a copy of a request from another request with the same number: SHA-256, in hex."""
    return hashlib.sha256(action.encode() + b"\0" + payload).hexdigest()


def refusal(verdict: Verdict, resource: str, stamp: Stamp, mark: Mark | None) -> Refused | None:
    """The error that a verdict stands for; ``None`` where the request was admitted or is a duplicate."""
    error = _REFUSALS.get(verdict)
    return None if error is None else error(resource, stamp, mark)


def with_reply(mark: Mark, stamp: Stamp, reply: bytes) -> Mark:
    """The mark with the reply of the request that it was raised by, if that one is counted; kept only if small."""
    if stamp.op is None:
        return mark
    return replace(mark, reply=reply if len(reply) <= REPLY_LIMIT else None)


def admit(mark: Mark | None, stamp: Stamp, action: Action, digest: str = "", *, data_present: bool = False) -> Decision:
    """Judge one request against the mark. Pure: no I/O, nothing is changed.

    ``data_present`` tells whether the resource has data; it matters only where there is no mark.
    """
    if mark is None:
        if data_present and action is not Action.ADOPT:
            return Decision(Verdict.UNFENCED, None)
    elif mark.lock != stamp.lock:
        same_namespace = mark.lock.partition("/")[0] == stamp.lock.partition("/")[0]
        return Decision(Verdict.WRONG_LOCK if same_namespace else Verdict.WRONG_NAMESPACE, mark)
    elif mark.token == stamp.token and mark.holder != stamp.holder:
        return Decision(Verdict.TOKEN_COLLISION, mark)
    if stamp.mode is Mode.READ or action is Action.READ:
        return _admit_reader(mark, stamp, action)
    return _admit_writer(mark, stamp, action, digest)


def _admit_reader(mark: Mark | None, stamp: Stamp, action: Action) -> Decision:
    """Readers are stopped by writes only: a claim alone does not shut out those who read beside it."""
    if action not in CLAIMS and action is not Action.READ:
        return Decision(Verdict.READ_ONLY, mark)
    if mark is not None and mark.written is not None and stamp.token < mark.written:
        return Decision(Verdict.STALE_TOKEN, mark)
    if action in CLAIMS and (mark is None or stamp.token > mark.token):
        written = None if mark is None else mark.written
        return Decision(Verdict.ADMITTED, Mark(stamp.token, written, stamp.lock, stamp.holder))
    return Decision(Verdict.ADMITTED, mark)


def _admit_writer(mark: Mark | None, stamp: Stamp, action: Action, digest: str) -> Decision:
    if mark is not None:
        if stamp.token < mark.token:
            return Decision(Verdict.STALE_TOKEN, mark)
        if stamp.token == mark.token and stamp.op is not None and stamp.op <= mark.op:
            copy = stamp.op == mark.op and digest == mark.digest
            return Decision(Verdict.DUPLICATE if copy else Verdict.OUT_OF_ORDER, mark)
    if mark is None or stamp.token > mark.token:
        written = None if mark is None else mark.written
        mark = Mark(stamp.token, written, stamp.lock, stamp.holder)
    if stamp.op is not None:
        mark = replace(mark, op=stamp.op, digest=digest, reply=b"")
    if action not in CLAIMS:
        mark = replace(mark, written=stamp.token)
    return Decision(Verdict.ADMITTED, mark)
