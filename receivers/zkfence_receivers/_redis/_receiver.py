"""RedisReceiver: the contract on a Redis or Valkey server."""

from __future__ import annotations

import warnings
from typing import Final, Literal

import redis
from redis.exceptions import NoScriptError, RedisError, ResponseError

from .._receiver import EXISTED, Receiver, Reply, Request
from ..words import (
    CLAIMS,
    Action,
    Mark,
    MarkCorrupt,
    OutcomeUnknown,
    ReceiverError,
    Refused,
    StoreFailed,
    UnsafeStore,
    UnverifiedStore,
    Verdict,
    check_name,
)
from ._delivery import Delivery
from ._failures import failure
from ._keys import Keys, check_prefix
from ._preflight import look
from ._script import SHA, SOURCE, arguments, read_answer, read_hash, read_mark

Durability = Literal["verified", "unverified", "asserted"]

_CHANGES: Final = frozenset({Action.WRITE, Action.DELETE})
_KNOW_BETTER: Final = 'If you know better, say RedisReceiver(…, durability="asserted")'


class RedisReceiver(Receiver):
    """Keeps marks and data in a Redis or Valkey server (6.2 or newer); one script on the server judges and changes.

    ::

        store = RedisReceiver(redis.Redis("redis.example", socket_timeout=5.0))
        with lock as grant:
            report = store.claim("report-7", grant)

    ``client`` is a ``redis.Redis`` for the master, with any settings; it stays yours to close. Its retry policy is
    followed: a request that is sent again is applied once (a change without ``op`` is not sent again). Without a
    ``socket_timeout`` a server that hangs makes you wait for ever.

    ``prefix`` begins every key. A resource's mark is the hash ``<prefix>:{<encoded name>}:mark``, its data the string
    ``<prefix>:{<encoded name>}:data``, which others may read. Neither ever expires. A data key that holds something
    else than a string is never overwritten: `StoreFailed`.

    ``durability="verify"``: before the first request, and whenever the server has forgotten the script (a restart, a
    failover), the server is asked whether it keeps what it acknowledges: ``appendonly yes``, ``appendfsync always``,
    ``no-appendfsync-on-rewrite no``, ``maxmemory-policy noeviction``, and that it is a master. Where one is known to
    be otherwise, every request raises `UnsafeStore`, which says how to mend it. Where one cannot be found out (a
    managed service without CONFIG), the receiver works, warns with `UnverifiedStore`, and `durability` says so.
    ``durability="asserted"``: you know better, nothing is asked.

    Guaranteed by the server's settings, not by this class: that marks survive. Not guaranteed: anything about those
    who write the keys past the script, and acknowledged marks over a failover to a replica (replication is
    asynchronous).

    Nothing is sent when it is made: errors come with the first request. Those of redis-py never come out:
    `StoreFailed` where nothing was changed, `OutcomeUnknown` where that is not certain. A write or deletion is only
    refused where no earlier copy of it can have been applied.
    """

    def __init__(
        self, client: redis.Redis, *, prefix: str = "zkfence", durability: Literal["verify", "asserted"] = "verify"
    ) -> None:
        if not isinstance(client, redis.Redis):
            raise TypeError(f"a redis.Redis is needed, not {type(client).__module__}.{type(client).__qualname__}")
        if durability not in ("verify", "asserted"):
            raise ValueError(f"durability is 'verify' or 'asserted', not {durability!r}")
        self._pool = client.connection_pool
        self._prefix = check_prefix(prefix)
        self._durability: Durability = "asserted" if durability == "asserted" else "unverified"
        self._looked = False

    @property
    def durability(self) -> Durability:
        """What is known of the server's settings: ``"verified"``, ``"unverified"`` (before the first request, or where
        they cannot be found out) or ``"asserted"`` by you."""
        return self._durability

    def check(self) -> Durability:
        """Ask the server for its settings now, as the first request would, and return `durability`.

        Raises `UnsafeStore` where a setting is known to be wrong, `StoreFailed` where the server cannot be reached.
        """
        try:
            self._look("")
        except RedisError as error:
            raise StoreFailed("", f"the server's settings could not be read: {error}") from error
        return self._durability

    def mark(self, resource: str) -> Mark | None:
        keys = Keys.of(self._prefix, check_name(resource, "resource"))
        delivery = Delivery(self._pool)
        try:
            fields = read_hash(delivery.ask("HGETALL", keys.mark))
        except RedisError as error:
            if isinstance(error, ResponseError) and "WRONGTYPE" in str(error):
                raise MarkCorrupt(resource, "its key holds no hash") from error
            raise _read_failed(resource, error, delivery) from error
        return read_mark(resource, fields) if fields else None

    def _perform(self, request: Request) -> Reply:
        delivery = Delivery(self._pool)
        try:
            return self._carry_out(request, delivery)
        except RedisError as error:
            if request.action is Action.READ:
                raise _read_failed(request.resource, error, delivery) from error
            known = failure(request.resource, error, unclear=delivery.unclear)
            unknown = OutcomeUnknown(request.resource, request.stamp, str(error), claiming=request.action in CLAIMS)
            raise known or unknown from error
        except (Refused, MarkCorrupt, StoreFailed, UnsafeStore) as error:
            if not delivery.unclear or request.action not in _CHANGES:
                raise
            # A first copy may have been applied, and the mark or the server have changed since.
            reason = f"the request was sent twice, and this answers the second: {error}"
            raise OutcomeUnknown(request.resource, request.stamp, reason) from error

    def _carry_out(self, request: Request, delivery: Delivery) -> Reply:
        looked_before = self._looked
        if not looked_before:
            self._look(request.resource)
        call = arguments(Keys.of(self._prefix, request.resource), request)
        resend = request.stamp.op is not None or request.action not in _CHANGES
        try:
            raw = delivery.ask("EVALSHA", SHA, *call, resend=resend)
        except NoScriptError:
            if looked_before:  # the server was started anew, or is another one
                self._look(request.resource)
            raw = delivery.ask("EVAL", SOURCE, *call, resend=resend)
        answer = read_answer(request.resource, raw)
        request.raise_refusal(answer.verdict, answer.mark)
        if answer.verdict is Verdict.DUPLICATE:
            assert answer.mark is not None
            return Reply(existed=answer.mark.reply == EXISTED, duplicate=True)
        return Reply(data=answer.data, existed=answer.existed)

    def _look(self, resource: str) -> None:
        if self._durability == "asserted":
            return
        self._looked = False
        findings = look(self._pool)
        if findings.problems:
            problems = "; ".join(findings.problems)
            raise UnsafeStore(
                resource,
                f"this Redis server does not keep what it acknowledges, so nothing was sent to it: {problems}. "
                + _KNOW_BETTER,
            )
        if findings.unknown:
            warnings.warn(
                f"this Redis server does not let its {', '.join(findings.unknown)} be read: whether it keeps what it "
                f"acknowledges is unverified. {_KNOW_BETTER}",
                UnverifiedStore,
                stacklevel=2,
            )
        self._durability = "unverified" if findings.unknown else "verified"
        self._looked = True


def _read_failed(resource: str, error: RedisError, delivery: Delivery) -> ReceiverError:
    """A read that was not answered is no unknown outcome: it has changed nothing."""
    known = failure(resource, error, unclear=delivery.unclear)
    return known or StoreFailed(resource, f"{resource!r}: the server did not answer; nothing was changed ({error})")
