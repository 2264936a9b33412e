"""Fixtures on real clusters, one per test session and profile; register with `-p cluster.pytest_plugin`.

Each fixture starts its cluster when the first test asks for it and removes it at the end of the session.
Set REASONINGPOOL_KEEP_CLUSTERS=1 to keep them for a look.
"""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

import pytest

from cluster import core, node, tools
from cluster.errors import UnsupportedError
from cluster.state import Profile

FAKE_NODES = 2

if TYPE_CHECKING:
    from collections.abc import Iterator


def _session(profile: Profile, *, fake_nodes: int = 0) -> Iterator[core.Cluster]:
    name = f"pytest-{profile}-{secrets.token_hex(3)}"
    cluster = core.up(name, profile, fake_nodes=fake_nodes, owned=True)
    try:
        yield cluster
    finally:
        if not os.environ.get("REASONINGPOOL_KEEP_CLUSTERS"):
            cluster.down()


@pytest.fixture(scope="session")
def controlplane() -> Iterator[core.Cluster]:
    """etcd, API server, controller manager and scheduler."""
    yield from _session(Profile.CONTROLPLANE)


@pytest.fixture(scope="session")
def fake_nodes_cluster() -> Iterator[core.Cluster]:
    """A control plane with two fake nodes of 8 H100 each; `add_fake_nodes` adds more."""
    yield from _session(Profile.FAKE_NODES, fake_nodes=FAKE_NODES)


@pytest.fixture(scope="session")
def node_cluster() -> Iterator[core.Cluster]:
    """A control plane and a node that runs pods; skips where that needs more rights than there are."""
    try:
        node.require()
        tools.ensure()
    except UnsupportedError as reason:
        pytest.skip(str(reason))
    yield from _session(Profile.NODE)
