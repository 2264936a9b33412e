"""Integer arithmetic of blocks and shards."""

from __future__ import annotations


def ceil_div(value: int, divisor: int) -> int:
    """Integer division, rounded up."""
    return -(-value // divisor)


def round_up(value: int, multiple: int) -> int:
    """The next multiple, the value itself where it is one."""
    return ceil_div(value, multiple) * multiple
