"""What every receiver keeps, run over all of them."""

from __future__ import annotations

import contextlib
import json
import os
import resource as limits
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import redis

from zkfence_receivers import (
    FileReceiver,
    Handle,
    InvalidStamp,
    InvalidToken,
    Mark,
    MarkCorrupt,
    MemoryReceiver,
    Mode,
    OutOfOrder,
    ReadOnlyStamp,
    Receiver,
    RedisReceiver,
    Refused,
    StaleToken,
    Stamp,
    StoreFailed,
    Token,
    TokenCollision,
    Unfenced,
    WrongLock,
    WrongNamespace,
)
from zkfence_receivers.testing import LocalRedis
from zkfence_receivers.words import Stamps

LOCK = "0f3c9a1e/reports"
TABLE = json.loads(files("zkfence_receivers").joinpath("admit_vectors.json").read_text(encoding="utf-8"))
BOUNDARIES = [1, 2, 9, 10, 99, 100, 2**31, 10**14, 2**53, 2**53 + 1, 10**18, 2**62, 2**63 - 2, 2**63 - 1]


class Grant:
    """What a receiver needs of a worker's grant: one counter for each resource."""

    def __init__(self, token: int, *, lock: str = LOCK, holder: str | None = None, mode: Mode = Mode.WRITE) -> None:
        self._first = Stamp(Token(token), lock, holder or f"guid-{token}", mode, None if mode is Mode.READ else 1)
        self._stamps: dict[str, Stamps] = {}

    def stamps(self, resource: str) -> Stamps:
        return self._stamps.setdefault(resource, Stamps(self._first))


def stamp(token: int, op: int | None = 1, **changes: Any) -> Stamp:
    return Stamp(Token(token), **({"lock": LOCK, "holder": f"guid-{token}", "op": op} | changes))


class Bench(ABC):
    """A receiver, and what a test does to its store behind its back."""

    store: Receiver

    @abstractmethod
    def data(self, resource: str) -> bytes | None:
        """What lies in the store."""

    @abstractmethod
    def plant(self, resource: str, data: bytes) -> None:
        """Put data there without a receiver."""

    @abstractmethod
    def failing(self, resource: str) -> contextlib.AbstractContextManager[None]:
        """Let changes of a large resource fail after they were admitted."""

    @abstractmethod
    def forget(self, resource: str) -> None:
        """Let the store lose all that it knows of the resource, as a flush or the restoring of a copy does."""

    def state(self, resource: str) -> tuple[Mark | None, bytes | None]:
        return self.store.mark(resource), self.data(resource)


class BrokenData(dict[str, bytes]):
    def __setitem__(self, resource: str, data: bytes) -> None:
        raise StoreFailed(resource, "broken")


class MemoryBench(Bench):
    store: MemoryReceiver

    def __init__(self) -> None:
        self.store = MemoryReceiver()

    def data(self, resource: str) -> bytes | None:
        return self.store._data.get(resource)

    def plant(self, resource: str, data: bytes) -> None:
        self.store._data[resource] = data

    def forget(self, resource: str) -> None:
        self.store._marks.pop(resource)
        self.store._data.pop(resource, None)

    @contextlib.contextmanager
    def failing(self, resource: str) -> Iterator[None]:
        self.store._data = BrokenData(self.store._data)
        try:
            yield
        finally:
            self.store._data = dict(self.store._data)


class RedisBench(Bench):
    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._prefix = f"contract-{os.urandom(6).hex()}"
        self.store = RedisReceiver(client, prefix=self._prefix)

    def _key(self, resource: str) -> str:
        return f"{self._prefix}:{{{resource}}}:data"

    def data(self, resource: str) -> bytes | None:
        return self._client.get(self._key(resource))

    def plant(self, resource: str, data: bytes) -> None:
        self._client.set(self._key(resource), data)

    def forget(self, resource: str) -> None:
        self._client.delete(self._key(resource), self._key(resource).replace(":data", ":mark"))

    @contextlib.contextmanager
    def failing(self, resource: str) -> Iterator[None]:
        self._client.rename(self._key(resource), "aside")
        self._client.rpush(self._key(resource), "somebody's list")
        try:
            yield
        finally:
            self._client.rename("aside", self._key(resource))


class FileBench(Bench):
    def __init__(self, root: Path, *, xattrs: bool) -> None:
        self._root = root
        self.store = FileReceiver(root, _xattrs=xattrs)

    def data(self, resource: str) -> bytes | None:
        path = self._root / resource
        return path.read_bytes() if path.exists() else None

    def plant(self, resource: str, data: bytes) -> None:
        (self._root / resource).write_bytes(data)

    def forget(self, resource: str) -> None:
        (self._root / ".zkfence" / f"{resource}.mark").unlink()
        (self._root / resource).unlink(missing_ok=True)

    @contextlib.contextmanager
    def failing(self, resource: str) -> Iterator[None]:
        before = limits.getrlimit(limits.RLIMIT_FSIZE)
        limits.setrlimit(limits.RLIMIT_FSIZE, (100_000, before[1]))  # a real error in the middle of a write
        try:
            yield
        finally:
            limits.setrlimit(limits.RLIMIT_FSIZE, before)


@pytest.fixture(scope="module")
def client(zkfence_redis: LocalRedis) -> Iterator[redis.Redis]:
    with zkfence_redis.client() as client:
        yield client


@pytest.fixture(params=["memory", "redis", "file", "file with sidecars"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    match request.param:
        case "memory":
            yield MemoryBench()
        case "redis":
            yield RedisBench(request.getfixturevalue("client"))
        case _:
            bench = FileBench(tmp_path / "store", xattrs=request.param == "file")
            with bench.store:
                yield bench


@pytest.fixture
def store(bench: Bench) -> Receiver:
    return bench.store


Attempt = Callable[[], object]


def refused(bench: Bench, attempts: list[Attempt], error: type[Exception]) -> None:
    """Each attempt raises the error, and leaves mark and data of ``r`` as they were."""
    for attempt in attempts:
        before = bench.state("r")
        with pytest.raises(error) as caught:
            attempt()
        assert bench.state("r") == before
        if isinstance(caught.value, Refused):
            assert (caught.value.resource, caught.value.mark) == ("r", before[0])


def every_request(store: Receiver, grant: Grant, late: Stamp) -> list[Attempt]:
    """Each kind of request; ``late`` is the stamp of the raw ones."""
    return [
        lambda: store.claim("r", grant),
        lambda: store.adopt("r", grant),
        lambda: store.apply_stamped("r", b"wrong", late),
        lambda: store.apply_stamped("r", None, late),
    ]


# Claim, read, write, delete


def test_a_claimed_resource_is_read_written_and_deleted(bench: Bench) -> None:
    handle = bench.store.claim("r", Grant(7))
    assert handle.resource == "r"
    assert handle.read() is None
    for data in (b"one", b"", bytes(range(256)) * 100):
        handle.write(data)
        assert handle.read() == bench.data("r") == data
    assert handle.delete() is True
    assert handle.delete() is False
    assert (handle.read(), bench.data("r")) == (None, None)
    handle.write(b"again")
    assert handle.read() == b"again"


def test_the_mark_tells_what_was_accepted_last(store: Receiver) -> None:
    assert store.mark("r") is None
    grant = Grant(2**53 + 1)
    handle = store.claim("r", grant)
    claimed = store.mark("r")
    assert claimed is not None
    assert (claimed.token, claimed.written, claimed.lock, claimed.holder, claimed.op) == (
        2**53 + 1,
        None,
        LOCK,
        f"guid-{2**53 + 1}",
        1,
    )
    handle.write(b"data")
    written = store.mark("r")
    assert written is not None
    assert (written.token, written.written, written.op) == (2**53 + 1, 2**53 + 1, 2)
    handle.read()
    assert store.mark("r") == written


def test_deleting_the_data_never_deletes_the_mark(bench: Bench) -> None:
    handle = bench.store.claim("r", Grant(7))
    handle.write(b"data")
    handle.delete()
    mark = bench.store.mark("r")
    assert mark is not None
    assert (mark.token, mark.written) == (7, 7)
    refused(bench, every_request(bench.store, Grant(6), stamp(6, 9)), StaleToken)


def test_resources_have_marks_of_their_own(store: Receiver) -> None:
    store.claim("a", Grant(9)).write(b"a")
    assert store.mark("b") is None
    store.claim("b", Grant(3)).write(b"b")
    mark = store.mark("a")
    assert mark is not None
    assert mark.token == 9


# Older and newer holders


def test_a_holder_that_wakes_up_late_is_refused(bench: Bench) -> None:
    zombie = bench.store.claim("r", Grant(7))
    zombie.write(b"one")
    bench.store.claim("r", Grant(8))
    refused(bench, [lambda: zombie.write(b"late"), zombie.delete], StaleToken)
    assert zombie.read() == b"one"  # nobody has written since


def test_a_zombie_that_claims_late_is_refused_and_the_new_holder_writes_on(bench: Bench) -> None:
    handle = bench.store.claim("r", Grant(8))
    refused(bench, every_request(bench.store, Grant(7), stamp(7, 9)), StaleToken)
    handle.write(b"new")
    refused(bench, every_request(bench.store, Grant(7), stamp(7, 9)), StaleToken)
    handle.write(b"newer")
    assert bench.data("r") == b"newer"


@pytest.mark.parametrize("then", ["nobody", "an older one"])
def test_a_handle_notices_that_the_store_has_forgotten_its_claim(bench: Bench, then: str) -> None:
    handle = bench.store.claim("r", Grant(8))
    handle.write(b"acknowledged")
    bench.forget("r")
    if then == "an older one":
        bench.store.claim("r", Grant(7))
    refused(bench, [handle.read, lambda: handle.write(b"more"), handle.delete], MarkCorrupt)
    bench.store.claim("r", Grant(9)).write(b"a new claim goes on")


def test_an_older_holder_may_not_even_read_after_a_newer_write(store: Receiver) -> None:
    zombie = store.claim("r", Grant(7))
    store.claim("r", Grant(8)).write(b"new")
    with pytest.raises(StaleToken) as caught:
        zombie.read()
    assert (caught.value.stamp.token, caught.value.mark and caught.value.mark.token) == (7, 8)
    assert "0.7" in str(caught.value)
    assert "0.8" in str(caught.value)


@pytest.mark.parametrize("token", BOUNDARIES)
def test_tokens_are_compared_exactly(bench: Bench, token: int) -> None:
    handle = bench.store.claim("r", Grant(token))
    handle.write(b"at")
    if token > 1:
        refused(bench, every_request(bench.store, Grant(token - 1), stamp(token - 1, 9)), StaleToken)
    handle.write(b"still")
    if token < 2**63 - 1:
        bench.store.claim("r", Grant(token + 1)).write(b"above")
        refused(bench, every_request(bench.store, Grant(token), stamp(token, 9)), StaleToken)


def test_growing_tokens_are_each_accepted_and_their_predecessors_refused(bench: Bench) -> None:
    for before, token in zip([None, *BOUNDARIES], BOUNDARIES, strict=False):
        bench.store.claim("r", Grant(token)).write(str(token).encode())
        if before is not None:
            refused(bench, every_request(bench.store, Grant(before), stamp(before, 9)), StaleToken)


def test_the_same_token_of_another_holder_is_a_collision(bench: Bench) -> None:
    bench.store.claim("r", Grant(7)).write(b"first")
    impostor = Grant(7, holder="guid-of-another")
    refused(bench, every_request(bench.store, impostor, stamp(7, 9, holder="guid-of-another")), TokenCollision)
    bench.store.claim("r", Grant(8, holder="guid-of-another")).write(b"second")


def test_a_resource_stays_with_its_first_lock(bench: Bench) -> None:
    bench.store.claim("r", Grant(7)).write(b"data")
    for lock, error in (("0f3c9a1e/other", WrongLock), ("77aa01bc/reports", WrongNamespace)):
        refused(bench, every_request(bench.store, Grant(99, lock=lock), stamp(99, lock=lock)), error)
    assert not issubclass(WrongLock, WrongNamespace)


# Readers


def test_a_reader_stops_older_writers_and_not_other_readers(bench: Bench) -> None:
    writer = bench.store.claim("r", Grant(5))
    writer.write(b"data")
    first = bench.store.claim("r", Grant(6, mode=Mode.READ))
    second = bench.store.claim("r", Grant(8, mode=Mode.READ))
    third = bench.store.claim("r", Grant(7, mode=Mode.READ))
    assert first.read() == second.read() == third.read() == b"data"
    refused(bench, [lambda: writer.write(b"under their eyes"), writer.delete], StaleToken)
    bench.store.claim("r", Grant(9)).write(b"new")
    for reader in (first, second, third):
        refused(bench, [reader.read], StaleToken)


def test_a_reader_changes_nothing(bench: Bench) -> None:
    bench.store.claim("r", Grant(5)).write(b"data")
    reader = bench.store.claim("r", Grant(6, mode=Mode.READ))
    raw = stamp(6, 1, mode=Mode.READ)
    refused(
        bench,
        [
            lambda: reader.write(b"wrong"),
            reader.delete,
            lambda: bench.store.apply_stamped("r", b"wrong", raw),
            lambda: bench.store.apply_stamped("r", None, raw),
        ],
        ReadOnlyStamp,
    )


# Requests that come twice, late, or not at all


def test_the_same_request_delivered_twice_is_applied_once(bench: Bench) -> None:
    first = bench.store.apply_stamped("r", b"one", stamp(7, 1))
    assert not first.duplicate
    state = bench.state("r")
    again = bench.store.apply_stamped("r", b"one", stamp(7, 1))
    assert again.duplicate
    assert bench.state("r") == state
    gone = bench.store.apply_stamped("r", None, stamp(7, 2))
    state = bench.state("r")
    for _ in range(2):
        again = bench.store.apply_stamped("r", None, stamp(7, 2))
        assert (again.duplicate, again.existed) == (True, gone.existed) == (True, True)
        assert bench.state("r") == state


def test_a_deletion_of_nothing_keeps_its_reply_too(store: Receiver) -> None:
    assert store.apply_stamped("r", None, stamp(7, 1)).existed is False
    assert replace(store.apply_stamped("r", None, stamp(7, 1)), duplicate=False).existed is False


def test_a_delayed_request_of_the_same_holder_is_refused(bench: Bench) -> None:
    bench.store.apply_stamped("r", b"one", stamp(7, 1))
    bench.store.apply_stamped("r", b"two", stamp(7, 2))
    refused(
        bench,
        [
            lambda: bench.store.apply_stamped("r", b"one", stamp(7, 1)),  # a late copy
            lambda: bench.store.apply_stamped("r", None, stamp(7, 1)),
            lambda: bench.store.apply_stamped("r", b"other", stamp(7, 2)),  # the number of another request
            lambda: bench.store.apply_stamped("r", None, stamp(7, 2)),
            lambda: bench.store.claim("r", stamp(7, 2)),
        ],
        OutOfOrder,
    )


def test_a_claim_stops_the_own_late_writes(bench: Bench) -> None:
    grant = Grant(7)
    handle = bench.store.claim("r", grant)
    late = grant.stamps("r").take()  # a request that is still on its way
    bench.store.claim("r", grant)
    refused(bench, [lambda: bench.store.apply_stamped("r", b"late", late)], OutOfOrder)
    handle.write(b"in time")


def test_numbers_may_have_gaps(store: Receiver) -> None:
    for op in (1, 5, 6, 1000, 2**53 - 1):
        assert not store.apply_stamped("r", str(op).encode(), stamp(7, op)).duplicate


def test_a_second_claim_and_two_handles_of_one_grant_lose_no_write(bench: Bench) -> None:
    grant = Grant(7)
    first = bench.store.claim("r", grant)
    first.write(b"one")
    second = bench.store.claim("r", grant)
    assert second.read() == b"one"
    for number, handle in enumerate([second, first, second, first, first, second]):
        handle.write(str(number).encode())
        assert bench.data("r") == str(number).encode()
        assert first.read() == second.read() == str(number).encode()


def test_a_second_claim_with_the_same_stamp_is_never_an_acknowledged_and_dropped_write(bench: Bench) -> None:
    first = bench.store.claim("r", stamp(7))
    first.write(b"one")
    refused(bench, [lambda: bench.store.claim("r", stamp(7))], OutOfOrder)
    first.write(b"two")
    assert bench.data("r") == b"two"


def test_two_handles_of_one_grant_in_two_threads_lose_no_write(bench: Bench) -> None:
    grant = Grant(7)
    handles = [bench.store.claim("r", grant) for _ in range(2)]
    errors: list[Exception] = []

    def write(handle: Handle, name: str) -> None:
        try:
            for number in range(10):
                handle.write(f"{name} {number}".encode())
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(handle, str(name))) for name, handle in enumerate(handles)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    mark = bench.store.mark("r")
    assert mark is not None
    assert mark.op == 22


def test_a_request_without_a_number_is_applied_each_time(bench: Bench) -> None:
    foreign = stamp(7, None)
    for data in (b"one", b"one", b"two", b"one"):
        reply = bench.store.apply_stamped("r", data, foreign)
        assert not reply.duplicate
        assert bench.data("r") == data
    refused(bench, [lambda: bench.store.apply_stamped("r", b"late", stamp(6, None))], StaleToken)


def test_a_change_that_fails_is_no_duplicate_when_it_is_sent_again(bench: Bench) -> None:
    large, larger = b"o" * 200_000, b"n" * 300_000
    bench.store.claim("r", Grant(7)).write(large)
    before = bench.state("r")
    with bench.failing("r"), pytest.raises(StoreFailed):
        bench.store.apply_stamped("r", larger, stamp(8, 1))
    mark, data = bench.state("r")
    assert data == large
    assert before[0] is not None
    assert mark is not None
    assert mark.token in (7, 8)
    assert (mark.written, mark.op in (before[0].op, 0)) == (7, True)  # the number is never recorded without its data
    reply = bench.store.apply_stamped("r", larger, stamp(8, 1))
    assert not reply.duplicate
    assert bench.data("r") == larger
    assert bench.store.apply_stamped("r", larger, stamp(8, 1)).duplicate


def test_a_handle_goes_on_after_a_change_that_failed(bench: Bench) -> None:
    handle = bench.store.claim("r", Grant(7))
    handle.write(b"o" * 200_000)
    with bench.failing("r"), pytest.raises(StoreFailed):
        handle.write(b"n" * 300_000)
    assert handle.read() == b"o" * 200_000
    handle.write(b"m" * 300_000)
    assert handle.read() == b"m" * 300_000


# Data that was there before


def test_data_that_was_there_before_is_refused_until_it_is_adopted(bench: Bench) -> None:
    bench.plant("r", b"old")
    refused(bench, every_request(bench.store, Grant(7), stamp(7))[:1], Unfenced)
    refused(bench, every_request(bench.store, Grant(7), stamp(7))[2:], Unfenced)
    refused(bench, [lambda: bench.store.claim("r", Grant(7, mode=Mode.READ))], Unfenced)
    handle = bench.store.adopt("r", Grant(7))
    assert handle.read() == b"old"
    handle.write(b"new")
    assert bench.data("r") == b"new"
    refused(bench, every_request(bench.store, Grant(6), stamp(6)), StaleToken)


def test_adopting_what_has_a_mark_is_a_claim(bench: Bench) -> None:
    bench.store.claim("r", Grant(7)).write(b"data")
    handle = bench.store.adopt("r", Grant(8))
    assert handle.read() == b"data"
    refused(bench, every_request(bench.store, Grant(7), stamp(7, 9)), StaleToken)


# What is no token, no stamp, no payload


def test_what_is_no_token_is_refused_before_anything_changes(bench: Bench) -> None:
    store = bench.store
    no_tokens: list[Any] = [0, -1, 2**63, True, 1.0, float("nan"), None, "1_0", " 7", "٣", "7", b"7", LOCK]
    for _ in range(2):  # without and with a mark
        for wrong in no_tokens:
            attempts: list[Attempt] = [
                lambda wrong=wrong: store.apply_stamped("r", b"wrong", Stamp(wrong, LOCK, "guid-7", op=9)),
                lambda wrong=wrong: store.apply_stamped("r", None, replace(stamp(7, 9), token=wrong)),
                lambda wrong=wrong: store.claim("r", Stamp(wrong, LOCK, "guid-7", op=9)),
                lambda wrong=wrong: store.adopt("r", Stamp(wrong, LOCK, "guid-7")),
            ]
            refused(bench, attempts, InvalidToken)
        store.claim("r", Grant(7))


def test_what_is_no_token_on_the_wire_is_refused_before_anything_changes(bench: Bench) -> None:
    bench.store.claim("r", Grant(7)).write(b"data")
    for text in TABLE["invalid_tokens"]:
        wire = json.dumps({"v": 1, "token": text, "lock": LOCK, "holder": "guid-7", "op": 9})
        headers = stamp(7, 9).to_headers() | {"Fencing-Token": text}
        refused(
            bench,
            [
                lambda wire=wire: bench.store.apply_stamped("r", b"wrong", Stamp.from_json(wire)),
                lambda headers=headers: bench.store.claim("r", Stamp.from_headers(headers)),
            ],
            InvalidToken,
        )


def test_a_stamp_whose_token_is_no_text_is_refused_before_anything_changes(bench: Bench) -> None:
    for token in ("", ',"token":7', ',"token":true', ',"token":7.0', ',"token":null', ',"token":["7"]'):
        with pytest.raises(InvalidToken):
            bench.store.apply_stamped("r", b"wrong", Stamp.from_json('{"v":1' + token + "}"))
    assert bench.state("r") == (None, None)


def test_what_is_no_stamp_is_refused_before_anything_changes(bench: Bench) -> None:
    bench.store.claim("r", Grant(7)).write(b"data")
    before = bench.state("r")
    wrong: list[dict[str, Any]] = [
        *[{"op": op} for op in (0, -1, 2**53, True, 1.0, "1")],
        *[{"holder": holder} for holder in (7, None, b"h", "\ud800")],
        *[{"lock": lock} for lock in (7, None, b"l", "\udfff")],
        {"mode": "both"},
    ]
    for changes in wrong:
        with pytest.raises(InvalidStamp):
            bench.store.apply_stamped("r", b"wrong", replace(stamp(7, 9), **changes))
        with pytest.raises(InvalidStamp):
            bench.store.claim("r", replace(stamp(8), **changes))
    assert bench.state("r") == before


def test_what_is_no_stamp_at_all_is_refused_before_anything_changes(bench: Bench) -> None:
    bench.store.claim("r", Grant(7)).write(b"data")
    wrong: list[Any] = [7, "7", None, stamp(8).to_json(), {"token": 8}, Token(8)]
    refused(bench, [lambda w=w: bench.store.apply_stamped("r", b"wrong", w) for w in wrong], TypeError)


def test_what_is_no_payload_is_refused_before_anything_changes(bench: Bench) -> None:
    handle = bench.store.claim("r", Grant(7))
    handle.write(b"data")
    payloads: list[Any] = ["text", 7, [1, 2], object()]
    for wrong in payloads:
        refused(
            bench,
            [
                lambda wrong=wrong: handle.write(wrong),
                lambda wrong=wrong: bench.store.apply_stamped("r", wrong, stamp(7, 9)),
            ],
            TypeError,
        )


def test_a_stamp_from_elsewhere_claims_and_counts_on(store: Receiver) -> None:
    wire = stamp(7, 3).to_json()
    handle = store.claim("r", Stamp.from_json(wire))
    handle.write(b"data")
    mark = store.mark("r")
    assert mark is not None
    assert mark.op == 4
