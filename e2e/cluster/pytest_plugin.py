"""Fixtures on real clusters, one per test session and profile; register with `-p cluster.pytest_plugin`.

Each fixture starts its cluster when the first test asks for it and removes it at the end of the session.
Set REASONINGPOOL_KEEP_CLUSTERS=1 to keep them for a look.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from cluster import core
from cluster.state import Profile

if TYPE_CHECKING:
    from collections.abc import Iterator


def _session(profile: Profile) -> Iterator[core.Cluster]:
    name = f"pytest-{profile}-{os.getpid()}"[:30]
    cluster = core.up(name, profile)
    try:
        yield cluster
    finally:
        if not os.environ.get("REASONINGPOOL_KEEP_CLUSTERS"):
            cluster.down()


@pytest.fixture(scope="session")
def controlplane() -> Iterator[core.Cluster]:
    """etcd, API server, controller manager and scheduler."""
    yield from _session(Profile.CONTROLPLANE)
