"""Figures in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoningpool.sizing.units import counted, human_bytes

UNITS = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "bytes": 1, "byte": 1}


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (100, "100 bytes"),
        (2**10, "1.00 KiB"),
        (2654208, "2.53 MiB"),
        (2**29, "0.50 GiB"),
        (3 * 2**40, "3,072.00 GiB"),
        (-(2**20), "-1.00 MiB"),
    ],
)
def test_a_size_has_a_unit_that_suits_it(size: int, shown: str) -> None:
    assert human_bytes(size) == shown


@given(st.integers(min_value=-(2**60), max_value=2**60))
def test_what_is_shown_is_within_a_twentieth_of_the_size(size: int) -> None:
    number, unit = human_bytes(size).replace(",", "").split()
    assert abs(float(number) * UNITS[unit] - size) <= abs(size) / 20


def test_one_is_not_many() -> None:
    assert [counted(number, "GPU") for number in (0, 1, 2)] == ["0 GPUs", "1 GPU", "2 GPUs"]
