"""How far the forecast must stay below the pool, learnt from how often the pool overflowed.

The margin is a number of deviations of the forecast peak. It rises at every preemption and falls a little with every
finish, in the proportion that balances at the share aimed at (quantile tracking; "Adaptive Conformal Inference Under
Distribution Shift", Gibbs and Candès, NeurIPS 2021): whatever is wrong with the forecast, over T finishes the share of
preemptions is at most the one aimed at plus `(HIGHEST - LOWEST) / (STEP * T)`, as long as the highest margin suffices.
Before there are `LEARNING` finishes a preemption counts for less: it comes from the stated lengths, which are on their
way out, and a margin raised for them would stay for long.
"""

from __future__ import annotations

from typing import Final

START: Final = 2.0
LOWEST: Final = -2.0  # the forecast is too high where prefixes are shared that nobody told of
HIGHEST: Final = 8.0
STEP: Final = 0.2  # deviations per preemption
LEARNING: Final = 200


class Margin:
    """`target` is the number of preemptions per finish that is aimed at."""

    def __init__(self, target: float) -> None:
        self.target = target
        self.deviations = START
        self._finishes = 0

    def finished(self, outputs: int = 1) -> None:
        """So many outputs ended."""
        self._finishes += outputs
        self.deviations = max(LOWEST, self.deviations - self._step * self.target * outputs)

    def preempted(self, requests: int = 1) -> None:
        """So many requests were preempted."""
        self.deviations = min(HIGHEST, self.deviations + self._step * requests)

    @property
    def _step(self) -> float:
        return STEP * min(1.0, self._finishes / LEARNING)
