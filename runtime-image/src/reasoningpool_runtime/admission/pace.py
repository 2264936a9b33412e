"""Tokens per second of one sequence, for the requests whose tokens are not seen as they come."""

from __future__ import annotations

from math import exp
from typing import Final

MEMORY_SECONDS: Final = 60.0  # of decoding, summed over sequences


class Pace:
    """A mean over the last minute or so of decoding by any sequence."""

    def __init__(self) -> None:
        self._tokens = self._seconds = 0.0

    def observe(self, tokens: int, seconds: float) -> None:
        """A sequence has generated so many tokens within so much time."""
        if seconds <= 0:
            return
        kept = exp(-seconds / MEMORY_SECONDS)
        self._tokens = self._tokens * kept + tokens
        self._seconds = self._seconds * kept + seconds

    @property
    def tokens_per_second(self) -> float | None:
        """None before anything was seen."""
        return self._tokens / self._seconds if self._seconds > 0 else None
