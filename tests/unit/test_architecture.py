"""docs/architecture.md names every package of the operator, and only files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "operator/src/reasoningpool"
TEXT = (ROOT / "docs/architecture.md").read_text()
PATHS = sorted({text for text in re.findall(r"`([\w./*-]+)`", TEXT) if "/" in text})


def test_every_package_is_in_the_picture_of_layers() -> None:
    picture = TEXT.split("```")[3]
    rows = [re.match(r"(\w+)(?: +\| (\w+))?(?: +\| (\w+))?", line) for line in picture.strip().splitlines()]
    drawn = {name for row in rows if row for name in row.groups() if name}
    assert drawn == {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


@pytest.mark.parametrize("path", PATHS)
def test_a_named_file_exists(path: str) -> None:
    assert any(list(base.glob(path)) for base in (PACKAGE, ROOT)), "no such file"
