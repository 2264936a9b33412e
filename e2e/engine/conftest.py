"""The real engine and its tiny model, made on first use."""

from pathlib import Path

import pytest

from engine import environment, models
from engine.environment import EngineEnvironment


@pytest.fixture(scope="session")
def engine_environment() -> EngineEnvironment:
    return environment.ensure()


@pytest.fixture(scope="session")
def tiny_model(engine_environment: EngineEnvironment) -> Path:
    return models.ensure_tiny(engine=engine_environment)
