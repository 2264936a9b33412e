"""The operator on a real node: installed once, used by all end-to-end tests."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from demo import stack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.core import Cluster


@pytest.fixture(scope="session")
def operated(node_cluster: Cluster) -> Cluster:
    """A cluster with a node, the operator in it, and an image with the real vLLM."""
    stack.provide_engine(node_cluster, print)
    stack.provide_runtime(node_cluster)
    stack.provide_operator(node_cluster)
    stack.install_operator(node_cluster)
    return node_cluster


@pytest.fixture
def namespace(operated: Cluster) -> Iterator[str]:
    """A namespace of its own, removed afterwards."""
    name = operated.new_namespace()
    yield name
    operated.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def model(operated: Cluster, namespace: str) -> Iterator[str]:
    """The claim with the tiny model; its volume is removed afterwards."""
    stack.provide_model(operated, namespace, print)
    yield stack.MODEL_CLAIM
    operated.kubectl("delete", "pv", f"{namespace}-{stack.MODEL_CLAIM}", "--wait=false")


@pytest.fixture
def wait_until() -> Callable[..., None]:
    """Poll a condition until it holds or the deadline is over; `explain` says why it failed."""

    def wait(condition: Callable[[], bool], seconds: float, explain: Callable[[], str] = lambda: "") -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"not within {seconds:.0f} s: {explain()}")
            time.sleep(0.5)

    return wait
