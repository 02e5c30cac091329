"""An ensemble of this folder's own: its tests kill and pause servers, which the shared ones must not suffer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from zkfence.testing import LocalEnsemble


@pytest.fixture(scope="package")
def three_nodes() -> Iterator[LocalEnsemble]:
    with LocalEnsemble(3) as ensemble:
        yield ensemble


@pytest.fixture
def ensemble3(three_nodes: LocalEnsemble) -> Iterator[LocalEnsemble]:
    """Three servers, all of them up before and after the test, whatever it did to them."""
    yield three_nodes
    for node in three_nodes.nodes:
        if node.running:
            node.resume()
        else:
            node.start()
    for node in three_nodes.nodes:
        node.wait_until_up()
        node.wait_until_serving()
    three_nodes.wait_for_quorum()
