"""Options of the whole test suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings

if TYPE_CHECKING:
    import pytest

# The same examples on every machine, and no judgement by the clock.
settings.register_profile("suite", deadline=None, derandomize=True, database=None)
# New examples at every run, and more of them: `pytest --hypothesis-profile=explore`, which is part of `make soak`.
settings.register_profile("explore", deadline=None, max_examples=500, database=None, print_blob=True)
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")
