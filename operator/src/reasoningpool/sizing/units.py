"""Figures with a unit that suits their size."""

from __future__ import annotations

from math import ceil
from typing import Final

from reasoningpool.sizing.types import FitUnit

# Two decimals tell at least two figures from a tenth of a unit on.
_UNITS: Final = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def human_bytes(value: int) -> str:
    """An amount of memory in the largest unit of which it has a tenth.

    >>> human_bytes(3 << 29), human_bytes(768 << 10), human_bytes(0), human_bytes(1), human_bytes(-(5 << 30))
    ('1.50 GiB', '0.75 MiB', '0 bytes', '1 byte', '-5.00 GiB')
    """
    for name, unit in _UNITS:
        if 10 * abs(value) >= unit:
            return f"{value / unit:,.2f} {name}"
    return f"{value} byte" if value == 1 else f"{value} bytes"


def fit_figure(value: int, unit: FitUnit) -> str:
    """A figure of what does not fit.

    >>> fit_figure(3 << 29, FitUnit.BYTES), fit_figure(40_960, FitUnit.TOKENS)
    ('1.50 GiB', '40,960 tokens')
    """
    return human_bytes(value) if unit is FitUnit.BYTES else counted(value, "token")


def counted(number: int, what: str) -> str:
    """A number with its noun.

    >>> counted(1, "GPU"), counted(8, "GPU")
    ('1 GPU', '8 GPUs')
    """
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def permille(share: float) -> int:
    """A share of 0 to 1 in whole permille, upwards: a risk is not shown smaller than it is.

    >>> permille(0.0061), permille(0.007), permille(0.0)
    (7, 7, 0)
    """
    return ceil(round(1000 * share, 6))
