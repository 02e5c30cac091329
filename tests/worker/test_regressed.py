"""TokenRegressed: a claim is refused as stale although nobody can have had a later token. It is never said in error."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import zkfence
from zkfence import FencedLock, FencedReadLock, FencedSemaphore, FencedWriteLock, Grant, _diagnosis
from zkfence._core._operations import Effect, Landed
from zkfence._session import Session
from zkfence._threads import Driver
from zkfence.testing import LocalEnsemble
from zkfence_receivers import MemoryReceiver, Mode, Refused, StaleToken, Stamp, Token, TokenRegressed
from zkfence_receivers.words import Diagnosing

AHEAD = 1000


@pytest.fixture
def store() -> MemoryReceiver:
    return MemoryReceiver()


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grants do not hear that their node was deleted, as if the worker were paused just then."""
    monkeypatch.setattr(Session, "_watch", lambda session, event: None)


def forge(store: MemoryReceiver, grant: Grant) -> Token:
    """Make the store know a later token of the grant's lock, as after a restore of ZooKeeper."""
    stamp = grant.stamp("forged")
    later = Token(grant.token + AHEAD)
    store.apply_stamped("report", b"later", Stamp(later, stamp.lock, "somebody", op=1))
    return later


def refused(store: MemoryReceiver, grant: Grant | Stamp) -> Refused:
    before = store.mark("report")
    with pytest.raises(Refused) as caught:
        store.claim("report", grant)
    assert store.mark("report") == before
    return caught.value


def test_a_holder_whose_claim_is_stale_is_told_that_tokens_went_back(
    lock: FencedLock, store: MemoryReceiver, zkfence_ensemble: LocalEnsemble, zkfence_namespace: str
) -> None:
    with lock as grant:
        later = forge(store, grant)
        error = refused(store, grant)
        assert type(error) is TokenRegressed
        assert isinstance(error.__cause__, StaleToken)
        assert (error.stamp.token, error.mark) == (grant.token, store.mark("report"))
        for part in (grant.token.dotted, later.dotted, "restored", "forged", f"`{error.command}`"):
            assert part in str(error)
        assert error.command == (
            f"zkfence epoch raise --above {later.dotted} --zk {zkfence_ensemble.hosts} --namespace {zkfence_namespace}"
        )
        grant.check()
        with pytest.raises(TokenRegressed):
            store.adopt("report", grant)


def test_a_chroot_is_part_of_the_command(
    zk: zkfence.Client, connect: Callable[..., zkfence.Client], store: MemoryReceiver, zkfence_namespace: str
) -> None:
    zk.create(zkfence_namespace)
    with FencedLock(connect(zkfence_namespace), "a") as grant:
        forge(store, grant)
        error = refused(store, grant)
    assert isinstance(error, TokenRegressed)
    assert f"{zkfence_namespace} --namespace /zkfence" in error.command


def test_code_that_lets_stale_results_go_does_not_let_this_go() -> None:
    assert not issubclass(TokenRegressed, StaleToken)


def test_a_zombie_that_does_not_know_it_yet_is_stale(
    deaf: None, lock: FencedLock, other: FencedLock, other_zk: zkfence.Client, store: MemoryReceiver
) -> None:
    zombie = lock.acquire()
    other_zk.delete(zombie.path)
    with other as grant:
        store.claim("report", grant).write(b"newer")
        zombie.check()
        assert type(refused(store, zombie)) is StaleToken
    zombie.release()


def test_a_node_that_was_made_anew_at_the_same_path_is_not_the_grants(
    deaf: None, lock: FencedLock, other_zk: zkfence.Client, store: MemoryReceiver
) -> None:
    zombie = lock.acquire()
    forge(store, zombie)
    data, _ = other_zk.get(zombie.path)
    other_zk.delete(zombie.path)
    other_zk.create(zombie.path, data, ephemeral=True)
    assert type(refused(store, zombie)) is StaleToken
    other_zk.delete(zombie.path)
    zombie.release()


def test_a_node_of_another_session_is_not_the_grants(lock: FencedLock, store: MemoryReceiver) -> None:
    """A wiped ensemble issues transaction ids again, and so may make the same node once more, for somebody else."""
    with lock as grant:
        forge(store, grant)
        attempt = grant._holding.granted.attempt
        own, attempt.session_id = attempt.session_id, 1
        assert type(refused(store, grant)) is StaleToken
        attempt.session_id = own


def test_what_a_cut_off_server_still_shows_is_no_confirmation(
    zkfence_ensemble3: LocalEnsemble, store: MemoryReceiver, zkfence_namespace: str
) -> None:
    """It goes on answering reads, of a state that is over elsewhere."""
    alone = zkfence_ensemble3.followers()[0]
    rest = [node for node in zkfence_ensemble3.nodes if node is not alone]
    with zkfence.connect(alone.address, session_timeout=2.0) as zk:
        grant = FencedLock(zk, "a", namespace=zkfence_namespace).acquire(timeout=10)
        forge(store, grant)
        try:
            for node in rest:
                node.pause()
            assert zk.exists(grant.path), "it still shows the node"
            assert type(refused(store, grant)) is StaleToken
        finally:
            for node in rest:
                node.resume()
            zkfence_ensemble3.wait_for_quorum()
        grant.release()


def test_a_grant_that_is_over_or_not_concerned_is_not_looked_into(
    lock: FencedLock, store: MemoryReceiver, zk: zkfence.Client, zkfence_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = lock.acquire()
    forge(store, released)
    error = refused(store, released).__cause__
    assert isinstance(error, StaleToken)
    released.release()
    assert released.diagnose(error) is error

    def refusal_of(grant: Grant) -> StaleToken:
        return StaleToken("report", grant.stamp("report"), store.mark("report"))

    with lock as lost:
        error = refusal_of(lost)
        assert isinstance(lost.diagnose(error), TokenRegressed)
        zk.delete(lost.path)
        assert lost.lost.wait(5)
        assert lost.diagnose(error) is error
    with lock as forked:
        error = refusal_of(forked)
        with FencedLock(zk, "b", namespace=zkfence_namespace) as another:
            assert another.diagnose(error) is error, "it is not its own"
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            assert forked.diagnose(error) is error


def test_a_reader_is_never_told_so(lock: FencedLock, store: MemoryReceiver) -> None:
    """A newer reader may have raised the mark, and a newer writer may have written behind both."""
    with lock as grant:
        forge(store, grant)
        stamp = replace(grant.stamp("report"), mode=Mode.READ, op=None)
        assert type(refused(store, stamp)) is StaleToken
        error = StaleToken("report", stamp, store.mark("report"))
        assert grant.diagnose(error) is error


def test_the_grant_of_a_read_lock_is_never_told_so(
    zk: zkfence.Client, store: MemoryReceiver, zkfence_namespace: str
) -> None:
    with FencedReadLock(zk, "a", namespace=zkfence_namespace) as grant:
        forge(store, grant)
        assert type(refused(store, grant)) is StaleToken


def test_whoever_writes_alone_is_told_so(zk: zkfence.Client, store: MemoryReceiver, zkfence_namespace: str) -> None:
    with FencedWriteLock(zk, "a", namespace=zkfence_namespace) as grant:
        forge(store, grant)
        assert type(refused(store, grant)) is TokenRegressed
    with FencedSemaphore(zk, "s", permits=2, namespace=zkfence_namespace) as permit:
        of_slot = MemoryReceiver()
        forge(of_slot, permit)
        assert type(refused(of_slot, permit)) is TokenRegressed


def test_a_stamp_from_elsewhere_is_never_told_so(lock: FencedLock, store: MemoryReceiver) -> None:
    with lock as grant:
        forge(store, grant)
        assert type(refused(store, grant.stamp("report"))) is StaleToken


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_diagnosis_that_fails_leaves_what_is_sure(
    lock: FencedLock, store: MemoryReceiver, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    failure: Exception = [zkfence.NotConnected("closed"), RuntimeError("a bug"), TimeoutError()][number]

    class FailingDriver(Driver):
        def _do(self, effect: Effect) -> Landed | set[str] | None:
            raise failure

    with lock as grant:
        forge(store, grant)
        with monkeypatch.context() as patch:
            patch.setattr(_diagnosis, "Driver", FailingDriver)
            assert type(refused(store, grant)) is StaleToken
        assert type(refused(store, grant)) is TokenRegressed


def test_a_ctrl_c_in_a_diagnosis_gets_through_and_breaks_nothing(
    lock: FencedLock, store: MemoryReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    class InterruptedDriver(Driver):
        def _do(self, effect: Effect) -> Landed | set[str] | None:
            super()._do(effect)
            raise KeyboardInterrupt

    with lock as grant:
        forge(store, grant)
        with monkeypatch.context() as patch:
            patch.setattr(_diagnosis, "Driver", InterruptedDriver)
            with pytest.raises(KeyboardInterrupt) as caught:
                store.claim("report", grant)
        assert type(caught.value.__context__) is StaleToken
        store.claim("another report", grant).write(b"goes on")


def test_a_claimant_without_a_diagnosis_is_still_a_claimant(lock: FencedLock, store: MemoryReceiver) -> None:
    with lock as grant:
        forge(store, grant)

        class Plain:
            def stamps(self, resource: str) -> Any:
                return grant.stamps(resource)

        assert isinstance(grant, Diagnosing)
        assert not isinstance(Plain(), Diagnosing)
        with pytest.raises(StaleToken):
            store.claim("report", Plain())
