"""Landing: which answers prove that the session lived, and which ones kazoo has made itself."""

from __future__ import annotations

import pytest
from kazoo.exceptions import AuthFailedError, NoAuthError

from zkfence import AccessDenied, NotConnected, ZooKeeperFailed
from zkfence._core._operations import BadVersion, ConnectionLost, NodeExists, NoNode, NotEmpty, SessionLost
from zkfence._landing import is_from_leader


def denied(cause: Exception) -> AccessDenied:
    error = AccessDenied("refused")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("answer", [None, NoNode(), NodeExists(), BadVersion(), NotEmpty(), denied(NoAuthError())])
def test_what_the_leader_has_decided_proves_the_session(answer: object) -> None:
    assert is_from_leader(answer)


@pytest.mark.parametrize(
    "answer",
    [
        ConnectionLost(),
        SessionLost(),
        NotConnected("closed"),
        denied(AuthFailedError()),
        ZooKeeperFailed("?"),
        OSError(),
    ],
)
def test_what_anybody_else_has_made_up_proves_nothing(answer: object) -> None:
    assert not is_from_leader(answer)
