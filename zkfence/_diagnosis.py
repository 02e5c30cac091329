"""Diagnosis: what the refusal of a claim means, where the token says 'stale' and ZooKeeper may know better."""

from __future__ import annotations

import logging
import shlex
from typing import Final

from zkfence_receivers.words import Mode, Refused, StaleToken, TokenRegressed

from ._core._attempt import Attempt
from ._core._confirming import is_surely_held
from ._session import Session
from ._threads import Driver

_log: Final = logging.getLogger("zkfence")
_PATIENCE: Final = 5.0  # seconds; a worker that was refused should hear of it soon


def diagnose(session: Session, attempt: Attempt, error: StaleToken) -> Refused:
    """`TokenRegressed` if the grant of ``attempt`` surely holds its lock after its claim was refused; else ``error``.

    An exclusive or write grant is alone: while its node is there, no later contender is granted. A reader is not, and
    a newer one may have raised the mark.

    Nothing is raised, but for what interrupts (Ctrl-C): what cannot be found out in time leaves ``error``.
    """
    if error.stamp.mode is not Mode.WRITE or error.mark is None or error.mark.token <= error.stamp.token:
        return error
    steps = is_surely_held(attempt.path, attempt.czxid, attempt.session_id, session)
    try:
        with Driver(session, session.now() + min(_PATIENCE, session.session_timeout)) as driver:
            if not driver.run(steps):
                return error
    except Exception:
        _log.debug("whether lock %r is still held could not be found out", attempt.lock_name, exc_info=True)
        return error
    return TokenRegressed(error.resource, error.stamp, error.mark, where=_where(session, attempt))


def _where(session: Session, attempt: Attempt) -> str:
    """The options of the command line for the ensemble and the namespace of ``attempt``."""
    client = session.client
    hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in client.hosts)
    return f"--zk {shlex.quote(hosts + client.chroot)} --namespace {shlex.quote(attempt.layout.namespace)}"
