"""Fixtures of the tests on a real API server. The clusters themselves come from `cluster.pytest_plugin`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cluster import lifecycle
from cluster.paths import cache_root
from cluster.state import Profile, all_states
from demo.stack import install_crd
from support.apiserver import ApiServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cluster.core import Cluster


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache with the built programs of the real one and no cluster; its clusters are removed at the end."""
    lifecycle.prepare(Profile.CONTROLPLANE)
    (tmp_path / "bin").symlink_to(cache_root() / "bin")
    monkeypatch.setenv("REASONINGPOOL_CACHE", str(tmp_path))
    yield tmp_path
    for state in all_states():
        lifecycle.down(state.name)


@pytest.fixture(scope="session")
def crd_cluster(controlplane: Cluster) -> Cluster:
    """A control plane that has our CRD."""
    install_crd(controlplane)
    return controlplane


@pytest.fixture
def apiserver(crd_cluster: Cluster) -> Iterator[ApiServer]:
    """A raw connection to its API server."""
    with ApiServer(crd_cluster.kubeconfig) as connection:
        yield connection
