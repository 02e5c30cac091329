"""FileReceiver answers every sequence of requests as MemoryReceiver does; hypothesis looks for one it does not."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkfence_receivers import FileReceiver, MemoryReceiver, Receiver, Refused, Stamp
from zkfence_receivers._files._root import Keeping
from zkfence_receivers._receiver import Reply, Request
from zkfence_receivers.words import Action, AlreadyApplied, Mode

# Few different values, so that equal, neighbouring and crossing ones are common.
stamps = st.builds(
    Stamp,
    token=st.integers(1, 4),
    lock=st.sampled_from(["n/a"] * 8 + ["n/b"]),
    holder=st.sampled_from(["guid-a"] * 4 + ["guid-b"]),
    mode=st.sampled_from([Mode.WRITE] * 4 + [Mode.READ]),
    op=st.one_of(st.none(), st.integers(1, 5)),
)
requests = st.tuples(st.sampled_from(Action), stamps, st.sampled_from([b"", b"one", b"two"]))
names = itertools.count()


@pytest.fixture(scope="module", params=list(Keeping))
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileReceiver]:
    root = tmp_path_factory.mktemp("store")
    with FileReceiver(root, _xattrs=request.param is Keeping.XATTR) as receiver:
        if receiver._root.keeping is not request.param:
            pytest.skip("the folder for temporary files has no extended attributes; choose another with --basetemp")
        yield receiver


def answer(receiver: Receiver, request: Request) -> Reply | tuple[type[Exception], object]:
    try:
        return receiver._perform(request)
    except (Refused, AlreadyApplied) as error:
        return type(error), getattr(error, "mark", None)


@given(sequence=st.lists(requests, min_size=1, max_size=12))
def test_every_sequence_of_requests_is_answered_as_in_memory(
    store: FileReceiver, sequence: list[tuple[Action, Stamp, bytes]]
) -> None:
    model, resource = MemoryReceiver(), f"resource {next(names)}"
    path = Path(store._root.data.path) / resource.replace(" ", "%20")
    with mock.patch.object(os, "fsync"):  # hundreds of stores: the rule is tested here, not the disk
        for action, sent, payload in sequence:
            request = Request(resource, action, sent, payload if action is Action.WRITE else b"")
            assert answer(store, request) == answer(model, request)
            assert store.mark(resource) == model.mark(resource)
            assert (path.read_bytes() if path.exists() else None) == model._data.get(resource)
