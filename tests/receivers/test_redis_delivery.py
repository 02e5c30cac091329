"""What RedisReceiver says when an answer does not come, and when the server answers with an error of its own."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from zkfence_receivers import (
    OutcomeUnknown,
    RedisReceiver,
    Refused,
    StaleToken,
    Stamp,
    StoreFailed,
    Token,
    UnsafeStore,
    ZkfenceError,
)
from zkfence_receivers.testing import LocalRedis


def stamp(token: int = 7, op: int | None = 1, holder: str = "guid-a") -> Stamp:
    return Stamp(Token(token), "n/l", holder, op=op)


def wait_until(condition: Callable[[], bool], timeout: float = 10.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


class Proxy:
    """Stands between client and server, and loses the answer to the next request that contains a given text: the
    request is applied, ``meanwhile`` is called, and the client sees a closed connection."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._wake, self._woken = socket.socketpair()
        self._marker: bytes | None = None
        self._meanwhile: Callable[[], object] = lambda: None
        self.lost = 0

    def lose_answer_to(self, marker: bytes, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._marker, self._meanwhile = marker, meanwhile

    def __enter__(self) -> Proxy:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._wake.close()  # every loop sees the end of the other side
        for thread in self._threads:
            thread.join(10)
        self._woken.close()
        self._listener.close()

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while self._woken not in (ready := select.select([self._listener, self._woken], [], [])[0]):
            assert ready
            self._start(self._serve, self._listener.accept()[0])

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._target)) as server:
            while self._woken not in (ready := select.select([client, server, self._woken], [], [])[0]):
                for source, target in ((client, server), (server, client)):
                    if source in ready:
                        chunk = source.recv(1 << 16)
                        if not chunk:
                            return
                        target.sendall(chunk)
                        if source is client and self._marker is not None and self._marker in chunk:
                            self._marker = None
                            assert server.recv(1 << 16)  # the server has answered: it is done
                            self.lost += 1
                            self._meanwhile()
                            return


@pytest.fixture(scope="module")
def server() -> Iterator[LocalRedis]:
    with LocalRedis() as server:
        yield server


@pytest.fixture(autouse=True)
def direct(server: LocalRedis) -> Iterator[redis.Redis]:
    with server.client() as client:
        client.flushall()
        client.config_resetstat()
        yield client


@pytest.fixture
def proxy(server: LocalRedis) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@contextlib.contextmanager
def through(proxy: Proxy, retries: int) -> Iterator[RedisReceiver]:
    with redis.Redis(port=proxy.port, retry=Retry(NoBackoff(), retries), socket_timeout=10) as client:
        yield RedisReceiver(client)


def calls(client: redis.Redis, command: str) -> int:
    return int(client.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0))


def test_a_lost_answer_is_an_unknown_outcome_and_the_same_stamp_may_be_sent_again(
    proxy: Proxy, direct: redis.Redis
) -> None:
    with through(proxy, retries=0) as store:
        handle = store.claim("r", stamp())
        proxy.lose_answer_to(b"EVALSHA")
        with pytest.raises(OutcomeUnknown) as caught:
            handle.write(b"data")
        assert direct.get("zkfence:{r}:data") == b"data"
        assert caught.value.stamp == stamp(op=2)
        mark = store.mark("r")
        assert store.apply_stamped("r", b"data", caught.value.stamp).duplicate
        assert store.mark("r") == mark
        assert calls(direct, "set") == 1
        handle.write(b"next")
        assert handle.read() == b"next"


def test_a_claim_without_an_answer_may_be_repeated(proxy: Proxy, direct: redis.Redis) -> None:
    with through(proxy, retries=0) as store:
        proxy.lose_answer_to(b"\r\nclaim\r\n")
        with pytest.raises(OutcomeUnknown):
            store.claim("r", stamp())
        store.claim("r", stamp()).write(b"data")
        assert direct.get("zkfence:{r}:data") == b"data"


def test_a_request_that_redis_py_sends_again_is_applied_once(proxy: Proxy, direct: redis.Redis) -> None:
    with through(proxy, retries=1) as store:
        handle = store.claim("r", stamp())
        handle.write(b"one")
        before = calls(direct, "evalsha")
        proxy.lose_answer_to(b"EVALSHA")
        handle.write(b"two")
        assert (proxy.lost, calls(direct, "evalsha") - before, calls(direct, "set")) == (1, 2, 2)
        proxy.lose_answer_to(b"\r\ndelete\r\n")
        assert handle.delete() is True  # the first copy's reply, not the second one's
        assert proxy.lost == 2
        assert calls(direct, "del") == 1


def test_a_refusal_of_the_second_copy_is_no_refusal_of_the_first(proxy: Proxy, direct: redis.Redis) -> None:
    newer = RedisReceiver(direct)
    with through(proxy, retries=1) as store:
        handle = store.claim("r", stamp())
        seen: list[bytes | None] = []
        proxy.lose_answer_to(
            b"EVALSHA", meanwhile=lambda: seen.append(newer.claim("r", stamp(8, holder="guid-b")).read())
        )
        with pytest.raises(OutcomeUnknown, match="sent twice") as caught:
            handle.write(b"data")
        assert seen == [b"data"]  # it was applied: 'refused, nothing was changed' would have been a lie
        assert isinstance(caught.value.__cause__, StaleToken)
        with pytest.raises(StaleToken):
            handle.write(b"more")


def test_a_claim_that_was_overtaken_is_refused(proxy: Proxy, direct: redis.Redis) -> None:
    with through(proxy, retries=1) as store:
        proxy.lose_answer_to(
            b"\r\nclaim\r\n", meanwhile=lambda: RedisReceiver(direct).claim("r", stamp(8, holder="guid-b"))
        )
        with pytest.raises(StaleToken):
            store.claim("r", stamp())


def test_a_change_without_op_is_never_sent_twice(proxy: Proxy, direct: redis.Redis) -> None:
    with through(proxy, retries=3) as store:
        handle = store.claim("r", stamp(op=None))
        handle.write(b"zero")
        before = calls(direct, "evalsha")
        for attempt in (lambda: handle.write(b"data"), handle.delete):
            proxy.lose_answer_to(b"EVALSHA")
            with pytest.raises(OutcomeUnknown):
                attempt()
        assert calls(direct, "evalsha") - before == 2


def test_a_read_without_an_answer_has_changed_nothing(proxy: Proxy) -> None:
    with through(proxy, retries=0) as store:
        handle = store.claim("r", stamp())
        handle.write(b"data")
        proxy.lose_answer_to(b"EVALSHA")
        with pytest.raises(StoreFailed, match="did not answer"):
            handle.read()
        proxy.lose_answer_to(b"HGETALL")
        with pytest.raises(StoreFailed, match="did not answer"):
            store.mark("r")
        assert handle.read() == b"data"


def test_a_read_is_sent_again_as_the_client_is_told(proxy: Proxy) -> None:
    with through(proxy, retries=1) as store:
        handle = store.claim("r", stamp())
        handle.write(b"data")
        proxy.lose_answer_to(b"EVALSHA")
        assert handle.read() == b"data"
        assert proxy.lost == 1


def test_a_server_that_hangs_is_an_unknown_outcome_for_changes_only(server: LocalRedis, direct: redis.Redis) -> None:
    with server.client(socket_timeout=0.2, retry=Retry(NoBackoff(), 0)) as client:
        store = RedisReceiver(client)
        handle = store.claim("r", stamp())
        server.pause()
        try:
            with pytest.raises(OutcomeUnknown) as caught:
                handle.write(b"data")
            with pytest.raises(StoreFailed):
                handle.read()
        finally:
            server.resume()
        assert store.apply_stamped("r", b"data", caught.value.stamp)
        assert direct.get("zkfence:{r}:data") == b"data"
        assert calls(direct, "set") == 1


def test_a_hanging_preflight_is_no_unknown_outcome(server: LocalRedis, direct: redis.Redis) -> None:
    with server.client(socket_timeout=0.2, retry=Retry(NoBackoff(), 0)) as client:
        client.ping()
        server.pause()
        try:
            with pytest.raises(StoreFailed, match="nothing was sent"):
                RedisReceiver(client).apply_stamped("r", b"data", stamp())
        finally:
            server.resume()
        assert direct.dbsize() == 0


def test_a_server_that_is_not_there_is_a_failure_and_nothing_was_sent() -> None:
    with redis.Redis(port=1, retry=Retry(NoBackoff(), 0)) as client:
        store = RedisReceiver(client, durability="asserted")
        for attempt in (
            lambda: store.claim("r", stamp()),
            lambda: store.apply_stamped("r", b"", stamp()),
            lambda: store.mark("r"),
        ):
            with pytest.raises(StoreFailed, match="nothing was sent"):
                attempt()


def test_an_interrupted_request_leaves_no_answer_to_the_next_one(server: LocalRedis, direct: redis.Redis) -> None:
    class Interrupt(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupt

    direct.set("zkfence-other", "x")
    with server.client(max_connections=1) as client:
        store = RedisReceiver(client)
        handle = store.claim("r", stamp())
        handle.write(b"data")
        previous = signal.signal(signal.SIGUSR1, interrupt)
        server.pause()
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        try:
            with pytest.raises(Interrupt):
                handle.read()
        finally:
            server.resume()
            signal.signal(signal.SIGUSR1, previous)
            timer.join()
        assert client.ping() is True
        assert handle.delete() is True


Attempt = Callable[[RedisReceiver], object]

CHANGES: list[Attempt] = [
    lambda store: store.apply_stamped("r", b"data", stamp(op=9)),
    lambda store: store.apply_stamped("r", None, stamp(op=9)),
]
CLAIM: Attempt = lambda store: store.claim("r", stamp(op=9))  # noqa: E731


def refuse(store: RedisReceiver, attempts: list[Attempt], error: type[ZkfenceError], match: str) -> None:
    for attempt in attempts:
        with pytest.raises(error, match=match) as caught:
            attempt(store)
        assert not isinstance(caught.value, Refused | redis.RedisError | OSError)


def test_at_maxmemory_a_write_is_refused_whole_and_a_new_holder_still_claims(
    server: LocalRedis, direct: redis.Redis
) -> None:
    store = RedisReceiver(direct)
    store.claim("r", stamp()).write(b"old")
    mark = store.mark("r")
    direct.config_set("maxmemory", 1)
    try:
        refuse(store, CHANGES[:1], StoreFailed, "maxmemory")
        assert store.mark("r") == mark
        handle = store.claim("r", stamp(8, holder="guid-b"))
        store.claim("fresh", stamp())
        assert handle.read() == b"old"
        refuse(store, [lambda _: handle.write(b"new")], StoreFailed, "maxmemory")
        with pytest.raises(StaleToken):
            store.apply_stamped("r", b"late", stamp(op=3))
        assert handle.delete() is True  # frees memory
    finally:
        direct.config_set("maxmemory", 0)
    handle.write(b"new")
    assert handle.read() == b"new"


def test_a_server_that_wants_a_password() -> None:
    with LocalRedis(config={"requirepass": "secret"}) as server:
        for password, match in ((None, "password"), ("wrong", "password")):
            with server.client(password=password, retry=Retry(NoBackoff(), 0)) as client:
                refuse(RedisReceiver(client, durability="asserted"), [*CHANGES, CLAIM], StoreFailed, match)
                refuse(RedisReceiver(client), [*CHANGES, CLAIM], StoreFailed, match)
        with server.client() as client:
            RedisReceiver(client).claim("r", stamp()).write(b"data")


def test_a_user_who_may_not_run_scripts(server: LocalRedis, direct: redis.Redis) -> None:
    direct.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">secret", "~*", "+@all", "-eval", "-evalsha")
    with server.client(username="worker", password="secret") as client:
        refuse(RedisReceiver(client), [*CHANGES, CLAIM], StoreFailed, "EVALSHA")
    assert direct.dbsize() == 0


def test_a_user_with_just_the_permissions_that_the_documentation_names(server: LocalRedis, direct: redis.Redis) -> None:
    commands = [
        "evalsha",
        "eval",
        "info",
        "config|get",
        "hmget",
        "hgetall",
        "hset",
        "hdel",
        "exists",
        "type",
        "get",
        "set",
        "del",
    ]
    direct.execute_command(
        "ACL", "SETUSER", "worker", "reset", "on", ">secret", "~zkfence:*", *[f"+{command}" for command in commands]
    )
    with server.client(username="worker", password="secret") as client:
        store = RedisReceiver(client)
        handle = store.claim("r", stamp())
        handle.write(b"data")
        assert handle.read() == b"data"
        assert handle.delete() is True
        assert store.mark("r") is not None
        other = RedisReceiver(client, prefix="other")
        refuse(other, [*CHANGES, CLAIM], StoreFailed, "may not")
    assert direct.keys("other*") == []


def test_a_change_that_fails_after_it_was_admitted_is_not_recorded(server: LocalRedis, direct: redis.Redis) -> None:
    store = RedisReceiver(direct)
    store.claim("r", stamp()).write(b"old")
    mark = store.mark("r")
    direct.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">secret", "~*", "+@all", "-set", "-del")
    with server.client(username="worker", password="secret") as client:
        refuse(RedisReceiver(client), CHANGES, StoreFailed, "may not")
    assert store.mark("r") == mark
    assert direct.get("zkfence:{r}:data") == b"old"
    reply = store.apply_stamped("r", b"data", stamp(op=9))
    assert not reply.duplicate
    assert direct.get("zkfence:{r}:data") == b"data"


def test_a_user_who_may_change_the_data_and_not_the_mark_gets_no_false_promise(
    server: LocalRedis, direct: redis.Redis
) -> None:
    store = RedisReceiver(direct)
    store.claim("r", stamp())
    mark = store.mark("r")
    direct.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">secret", "~*", "+@all", "-hset")
    with server.client(username="worker", password="secret") as client:
        crippled = RedisReceiver(client)
        refuse(crippled, [CLAIM], StoreFailed, "may not")
        refuse(crippled, CHANGES, OutcomeUnknown, "HALFDONE")
    assert store.mark("r") == mark  # the op is never recorded where this fails


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ResponseError:
        return False


def test_a_busy_server(server: LocalRedis, direct: redis.Redis) -> None:
    store = RedisReceiver(direct)
    store.claim("r", stamp())
    direct.config_set("lua-time-limit", 1)
    with server.client() as busy:

        def loop() -> None:
            with contextlib.suppress(redis.ResponseError):
                busy.eval("while true do end", 0)

        endless = threading.Thread(target=loop)
        endless.start()
        try:
            wait_until(lambda: not answers(direct))
            refuse(store, [*CHANGES, CLAIM, lambda _: store.mark("r")], StoreFailed, "busy")
        finally:
            direct.script_kill()
            endless.join(10)
            direct.config_set("lua-time-limit", 5000)


def test_a_server_that_is_loading() -> None:
    # It looks at its clients after every 2 MB, and takes a second for all of it.
    with LocalRedis() as server:
        with server.client() as client:
            RedisReceiver(client).claim("r", stamp()).write(b"data")
            with client.pipeline(transaction=False) as pipe:
                for number in range(40):
                    pipe.set(f"filler-{number}", os.urandom(500_000))
                pipe.execute()
            client.config_set("key-load-delay", 25_000)  # microseconds for each key
            client.config_rewrite()
            client.bgrewriteaof()
            wait_until(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0)
        server.kill()
        starting = threading.Thread(target=server.restart)
        starting.start()
        with server.client(retry=Retry(NoBackoff(), 0)) as client:
            store = RedisReceiver(client, durability="asserted")

            def loading() -> bool:
                with pytest.raises(StoreFailed) as caught:
                    store.apply_stamped("r", b"more", stamp(op=3))
                return "still loading" in str(caught.value)

            wait_until(loading)
            starting.join(20)
            assert store.claim("r", stamp(op=4)).read() == b"data"


def test_a_replica_that_was_the_master_is_no_unknown_outcome(server: LocalRedis, direct: redis.Redis) -> None:
    store = RedisReceiver(direct)
    store.claim("r", stamp()).write(b"data")
    direct.execute_command("REPLICAOF", "127.0.0.1", 1)
    try:
        refuse(store, [*CHANGES, CLAIM], UnsafeStore, "replica")
    finally:
        direct.execute_command("REPLICAOF", "NO", "ONE")
    assert direct.get("zkfence:{r}:data") == b"data"
