"""Golden files: committed outputs, written anew by `pytest tests/golden --update-golden` (or `make generate`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the golden file of this name."""

    def compare(name: str, text: str) -> None:
        path = Path(__file__).parent / "files" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return
        assert path.exists(), f"{name} is missing: run make generate"
        assert text == path.read_text(), f"{name} changed; if that is right, run make generate"

    return compare
