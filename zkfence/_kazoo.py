"""The adapter: the protocol's operations, as calls of kazoo, and kazoo's answers, as the protocol's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kazoo import exceptions
from kazoo.client import KazooClient, TransactionRequest
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL

from ._core import _operations as core
from ._errors import LockError, NotConnected, ZooKeeperFailed
from ._permissions import refusal
from ._session import Session

_FAILURES: Final[dict[type[Exception], type[core.Failure]]] = {
    exceptions.NoNodeError: core.NoNode,
    exceptions.NodeExistsError: core.NodeExists,
    exceptions.BadVersionError: core.BadVersion,
    exceptions.NotEmptyError: core.NotEmpty,
    exceptions.ConnectionLoss: core.ConnectionLost,
    exceptions.OperationTimeoutError: core.ConnectionLost,
    exceptions.SessionMovedError: core.ConnectionLost,
    exceptions.SessionExpiredError: core.SessionLost,
}


def send(session: Session, operation: core.Operation, acl: Sequence[ACL] | None) -> IAsyncResult:
    """Put one operation into the client's queue; does not wait."""
    client = session.client
    match operation:
        case core.Get(path, watch):
            return client.get_async(path, watch=session.watch if watch else None)
        case core.Children(path):
            return client.get_children_async(path, include_data=True)
        case core.Create(path, data, contender):
            return client.create_async(path, data, acl, ephemeral=contender, sequence=contender, include_data=True)
        case core.Delete(path):
            return client.delete_async(path)
        case core.Sync(path):
            return client.sync_async(path)
        case core.Multi(operations):
            return _transaction(client, operations, acl).commit_async()


def _transaction(
    client: KazooClient,
    operations: Sequence[core.Create | core.Delete | core.SetData | core.Check],
    acl: Sequence[ACL] | None,
) -> TransactionRequest:
    transaction = client.transaction()
    for operation in operations:
        match operation:
            case core.Create(path, data):
                transaction.create(path, data, acl)
            case core.Delete(path):
                transaction.delete(path)
            case core.SetData(path, data, version):
                transaction.set_data(path, data, version)
            case core.Check(path):
                transaction.check(path, -1)
    return transaction


def nudge(client: KazooClient) -> None:
    """Make the client look at its queue.

    kazoo wakes its connection with one byte per request. A Ctrl-C between the request and the byte would leave the
    client one request behind for good: each would be sent only with the next one. A byte too many is harmless.
    """
    socket = client._connection._write_sock
    if socket is not None:
        socket.send(b"\0")


def result_of(session: Session, operation: core.Operation, answer: object) -> object:
    """kazoo's answer as the protocol's result or failure, or as a `LockError` for what no step can handle."""
    if isinstance(answer, Exception):
        return _failure_of(session, operation, answer)
    match operation, answer:
        case core.Get(), (bytes() as data, ZnodeStat() as stat):
            return core.Node(data, _stat(stat))
        case core.Children(), (list() as names, ZnodeStat() as stat):
            return core.Listing(tuple(names), _stat(stat))
        case core.Create(), (str() as path, ZnodeStat() as stat):
            return core.Created(path, _stat(stat))
        case core.Multi(operations), list() as results:
            # Those before the culprit say RolledBack, those behind it RuntimeInconsistency.
            for index, part in enumerate(results):
                if isinstance(part, Exception) and not isinstance(
                    part, exceptions.RolledBackError | exceptions.RuntimeInconsistency
                ):
                    failure = _failure_of(session, operations[index], part)
                    return core.NoNode(index) if isinstance(failure, core.NoNode) else failure
    return None


def _failure_of(session: Session, operation: object, error: Exception) -> Exception:
    if isinstance(error, exceptions.ConnectionClosedError):  # before its base, SessionExpiredError
        if session.closed:
            return NotConnected("the ZooKeeper client was closed while it was in use")
        nudge(session.client)  # kazoo also says so when a signal hits it while it sends, and the client lives
        return core.ConnectionLost()
    for kind, failure in _FAILURES.items():
        if isinstance(error, kind):
            return failure()
    if isinstance(error, exceptions.NoAuthError | exceptions.AuthFailedError | exceptions.InvalidACLError):
        wrapped: LockError = refusal(operation, error, session.client.chroot or "")
    elif isinstance(error, exceptions.KazooException):
        wrapped = ZooKeeperFailed(f"ZooKeeper answered {type(error).__name__} {error}")
    else:
        return error
    wrapped.__cause__ = error
    return wrapped


def _stat(stat: ZnodeStat) -> core.Stat:
    return core.Stat(stat.czxid, stat.version, stat.ephemeralOwner)
