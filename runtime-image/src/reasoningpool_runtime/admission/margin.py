"""How far the forecast must stay below the pool, learnt from how often the pool overflowed.

The margin is a number of deviations of the forecast peak. It rises at every preemption and falls a little with every
finish, in the proportion that balances at the share aimed at (quantile tracking; "Adaptive Conformal Inference Under
Distribution Shift", Gibbs and Candès, NeurIPS 2021): whatever is wrong with the forecast, over T finishes the share of
preemptions is at most the one aimed at plus `(HIGHEST - LOWEST) / (STEP * T)`, as long as the highest margin suffices.
"""

from __future__ import annotations

from typing import Final

START: Final = 2.0
LOWEST: Final = -2.0  # the forecast is too high where prefixes are shared that nobody told of
HIGHEST: Final = 8.0
STEP: Final = 0.2  # deviations per preemption


class Margin:
    """`target` is the number of preemptions per finish that is aimed at."""

    def __init__(self, target: float) -> None:
        self.target = target
        self.deviations = START

    def finished(self, outputs: int = 1) -> None:
        """So many outputs ended."""
        self.deviations = max(LOWEST, self.deviations - STEP * self.target * outputs)

    def preempted(self, requests: int = 1) -> None:
        """So many requests were preempted."""
        self.deviations = min(HIGHEST, self.deviations + STEP * requests)
