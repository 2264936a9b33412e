"""The operator's copy of what it and the request runtime agree on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

CONTRACT: Final = Path(__file__).parents[2] / "runtime-image/src/reasoningpool_runtime/contract.py"

_HEAD: Final = "# Generated from runtime-image/src/reasoningpool_runtime/contract.py by `make generate`.\n"


def contract_copy() -> str:
    """The runtime's contract, byte for byte but for a first line that says where it comes from."""
    return f"{_HEAD}{CONTRACT.read_text(encoding='utf-8')}"
