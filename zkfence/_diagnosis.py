"""Diagnosis: what the refusal of a claim means, where the token says 'stale' and ZooKeeper may know better."""

from __future__ import annotations

import logging
import os
import shlex
from typing import Final

from zkfence_receivers.words import Mode, Refused, StaleToken, TokenRegressed

from ._core._confirming import is_surely_held
from ._holding import Holding, State
from ._session import Session
from ._threads import Driver

_log: Final = logging.getLogger("zkfence")
_PATIENCE: Final = 5.0  # seconds; a worker that was refused should hear of it soon


def diagnose(holding: Holding, error: StaleToken) -> Refused:
    """`TokenRegressed` if ``holding`` surely holds its lock after its claim was refused; else ``error``.

    An exclusive or write grant is alone: while its node is there, no later contender is granted. A reader is not, and
    a newer one may have raised the mark.

    Nothing is raised, but for what interrupts (Ctrl-C): what cannot be found out in time leaves ``error``.
    """
    session, attempt = holding.session, holding.granted.attempt
    if os.getpid() != session.pid or holding.state is not State.HELD:
        return error
    if error.stamp.holder != attempt.guid or error.stamp.mode is not Mode.WRITE:
        return error
    if error.mark is None or error.mark.token <= error.stamp.token:
        return error
    steps = is_surely_held(attempt.path, attempt.czxid, attempt.session_id, session)
    try:
        with Driver(session, session.now() + min(_PATIENCE, session.session_timeout)) as driver:
            if not driver.run(steps):
                return error
    except Exception:
        _log.debug("whether lock %r is still held could not be found out", attempt.lock_name, exc_info=True)
        return error
    return TokenRegressed(error.resource, error.stamp, error.mark, where=_where(session, attempt.layout.namespace))


def _where(session: Session, namespace: str) -> str:
    """The options of the command line for this ensemble and this namespace."""
    client = session.client
    hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in client.hosts)
    return f"--zk {shlex.quote(hosts + (client.chroot or ''))} --namespace {shlex.quote(namespace)}"
