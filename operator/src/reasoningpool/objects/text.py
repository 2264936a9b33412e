"""Text of others in messages of ours."""

from __future__ import annotations


def shorten(text: str, width: int) -> str:
    """The text, cut to `width` characters with an ellipsis where it is longer.

    >>> shorten("a long value", 8), shorten("short", 8)
    ('a lon...', 'short')
    """
    return text if len(text) <= width else text[: width - 3] + "..."
