"""The adapter: the protocol's operations as kazoo's requests, and kazoo's answers as the protocol's.

Requests go into kazoo's queue by ``_call``, the one door behind all its public methods, with a reply of our own: so a
flight wakes its waiter once and not once per request, and no answer takes the way through kazoo's completion thread.
"""

from __future__ import annotations

import fcntl
import termios
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.protocol import serialization as wire
from kazoo.protocol.states import WatchedEvent
from kazoo.security import ACL, OPEN_ACL_UNSAFE

from ._connection._client import Client
from ._core import _operations as core
from ._errors import LockError, NotConnected, ZooKeeperFailed
from ._permissions import refusal

_CONTENDER: Final = 3  # ZooKeeper's flags: ephemeral and sequential
_PERSISTENT: Final = 0
_UNANSWERED: Final = object()

_FAILURES: Final[dict[type[Exception], type[core.Failure]]] = {
    exceptions.NoNodeError: core.NoNode,
    exceptions.NodeExistsError: core.NodeExists,
    exceptions.BadVersionError: core.BadVersion,
    exceptions.NotEmptyError: core.NotEmpty,
    exceptions.ConnectionLoss: core.ConnectionLost,
    exceptions.OperationTimeoutError: core.ConnectionLost,
    exceptions.SessionMovedError: core.ConnectionLost,
    exceptions.NotReadOnlyCallError: core.ConnectionLost,  # the server has lost its leader: another one will do
    exceptions.SessionExpiredError: core.SessionLost,
}


class Reply:
    """Where kazoo puts the answer to one request."""

    __slots__ = ("_answers", "answer")

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.answer: object = _UNANSWERED

    def ready(self) -> bool:
        return self.answer is not _UNANSWERED

    def set(self, value: object = None) -> None:
        self._take(value)

    def set_exception(self, error: Exception) -> None:
        self._take(error)

    def _take(self, answer: object) -> None:
        if self.answer is _UNANSWERED:  # kazoo may call twice where a signal or a close comes between
            self.answer = answer
            self._answers.check()


class Answers:
    """The replies of one flight; ``done`` is called once all are there (on kazoo's connection thread, and perhaps more
    than once): it must not block."""

    def __init__(self, number: int, done: Callable[[Answers], object]) -> None:
        self.replies = [Reply(self) for _ in range(number)]
        self._done = done

    @property
    def complete(self) -> bool:
        return all(reply.ready() for reply in self.replies)

    def give_up(self) -> None:
        """What has not been answered by now is lost."""
        for reply in self.replies:
            reply.set_exception(exceptions.ConnectionLoss())

    def check(self) -> None:
        # Answers come in order, so the last one is looked at first: a flight of a hundred is not counted a hundred
        # times.
        if self.replies[-1].ready() and self.complete:
            self._done(self)


class Kazoo:
    """One client, as the driver sees it."""

    def __init__(self, client: KazooClient, watch: Callable[[WatchedEvent], object]) -> None:
        """``watch`` is the one watcher for every path: however often a node is watched, kazoo keeps it once."""
        self._client = client
        self._watch = watch

    def send(
        self, operations: Sequence[core.Operation], acl: Sequence[ACL] | None, done: Callable[[Answers], object]
    ) -> Answers:
        """Put the operations into the client's queue; does not wait. Only while connected: the queue of a client that
        is not stalls at some 270 requests, and would still be sent long after they were given up."""
        client = self._client
        answers = Answers(len(operations), done)
        requests = [self._request(operation, acl) for operation in operations]
        calls = list(zip(requests, answers.replies, strict=True))
        try:
            if len(calls) > 1 and isinstance(client, Client):
                client.call_all(calls)
            else:
                for request, reply in calls:
                    client._call(request, reply)
        except BaseException:
            nudge(client)
            raise
        return answers

    def _request(self, operation: core.Operation, acl: Sequence[ACL] | None) -> object:
        match operation:
            case core.Get(path, watch):
                return wire.GetData(self._rooted(path), self._watch if watch else None)
            case core.Exists(path):
                return wire.Exists(self._rooted(path), None)
            case core.Children(path):
                return wire.GetChildren2(self._rooted(path), None)
            case core.Create(path, data, contender):
                flags = _CONTENDER if contender else _PERSISTENT
                return wire.Create2(self._rooted(path), data, self._acl(acl), flags)
            case core.Delete(path):
                return wire.Delete(self._rooted(path), -1)
            case core.Sync(path):
                return wire.Sync(self._rooted(path))
            case core.Multi(operations):
                return wire.Transaction([self._part(part, acl) for part in operations])

    def _part(
        self, operation: core.Create | core.Delete | core.SetData | core.Check, acl: Sequence[ACL] | None
    ) -> object:
        match operation:
            case core.Create(path, data):
                return wire.Create(self._rooted(path), data, self._acl(acl), _PERSISTENT)
            case core.Delete(path):
                return wire.Delete(self._rooted(path), -1)
            case core.SetData(path, data, version):
                return wire.SetData(self._rooted(path), data, version)
            case core.Check(path):
                return wire.CheckVersion(self._rooted(path), -1)

    def _rooted(self, path: str) -> str:
        chroot = self._client.chroot
        if not chroot:
            return path
        return chroot if path == "/" else chroot + path

    def _acl(self, acl: Sequence[ACL] | None) -> Sequence[ACL]:
        return acl or self._client.default_acl or OPEN_ACL_UNSAFE

    def results(self, operations: Sequence[core.Operation], answers: Answers) -> tuple[object, ...]:
        return tuple(
            self._result(operation, reply.answer) for operation, reply in zip(operations, answers.replies, strict=True)
        )

    def _result(self, operation: core.Operation, answer: Any) -> object:
        """kazoo's answer as the protocol's result or failure, or as a `LockError` for what no step can handle."""
        if isinstance(answer, Exception):
            return self._failure(operation, answer)
        match operation:
            case core.Get():
                data, stat = answer
                return core.Node(data or b"", stat)  # ZooKeeper knows nodes without data
            case core.Children():
                return core.Listing(*answer)
            case core.Exists():
                return core.NoNode() if answer is None else answer
            case core.Create():
                path, stat = answer
                return core.Created(self._client.unchroot(path), stat)
            case core.Multi(parts):
                # Those before the culprit say RolledBack, those behind it RuntimeInconsistency.
                for index, part in enumerate(answer):
                    if isinstance(part, Exception) and not isinstance(
                        part, exceptions.RolledBackError | exceptions.RuntimeInconsistency
                    ):
                        failure = self._failure(parts[index], part)
                        return core.NoNode(index) if isinstance(failure, core.NoNode) else failure
        return None

    def _failure(self, operation: object, error: Exception) -> Exception:
        if isinstance(error, exceptions.ConnectionClosedError):  # before its base, SessionExpiredError
            if is_closed(self._client):
                return NotConnected("the ZooKeeper client was closed while it was in use")
            nudge(self._client)  # kazoo also says so when a signal hits it while it sends, and the client lives
            return core.ConnectionLost()
        for kind, failure in _FAILURES.items():
            if isinstance(error, kind):
                return failure()
        if isinstance(error, exceptions.NoAuthError | exceptions.AuthFailedError | exceptions.InvalidACLError):
            wrapped: LockError = refusal(operation, error, self._client.chroot or "")
        elif isinstance(error, exceptions.KazooException):
            wrapped = ZooKeeperFailed(f"ZooKeeper answered {type(error).__name__} {error} to {operation}")
        else:
            return error
        wrapped.__cause__ = error
        return wrapped


def is_closed(client: KazooClient) -> bool:
    """Nothing can be answered any more, until somebody starts the client."""
    return client.client_state in ("CLOSED", "AUTH_FAILED")


def is_ready(client: KazooClient) -> bool:
    """Connected to a server that can write: one without a leader answers reads, and knows nothing of others' locks."""
    return client.client_state == "CONNECTED"


def nudge(client: KazooClient) -> None:
    """Make the client look at its queue.

    kazoo wakes its connection with one byte per request. A Ctrl-C between the request and the byte would leave the
    client one request behind for good: each would be sent only with the next one. A byte too many is harmless.
    """
    socket = client._connection._write_sock
    if socket is not None:
        socket.send(b"\0")


def backlog(client: KazooClient) -> int:
    """How many of those bytes the client's connection has not read yet. At some 270 the next request would block."""
    socket = getattr(client._connection, "_read_sock", None)
    unread = array("i", [0])
    if socket is not None:
        with suppress(OSError, ValueError):  # it is being closed
            fcntl.ioctl(socket, termios.FIONREAD, unread)
    return unread[0]
