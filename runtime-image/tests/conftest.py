from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from stack import Stack

from engine.environment import EngineEnvironment
from reasoningpool_runtime import contract


@pytest.fixture
async def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stack]:
    monkeypatch.setenv(contract.CONFIG_VARIABLE, str(tmp_path / "config.json"))
    monkeypatch.setenv(contract.STATE_DIR_VARIABLE, str(tmp_path / "state"))
    made = Stack(tmp_path)
    yield made
    await made.runtime.stop()


@pytest.fixture
def sample() -> Callable[..., float]:
    """The value of a metric, 0 where it has none; labels as keywords."""
    from prometheus_client import REGISTRY

    return lambda name, **labels: REGISTRY.get_sample_value(f"reasoningpool_{name}", labels) or 0.0


@pytest.fixture(scope="session")
def engine_environment() -> EngineEnvironment:
    from engine import environment

    return environment.ensure()
