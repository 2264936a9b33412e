"""How well the expected share of preempted requests agrees with a simulation of vLLM's scheduler.

All loads of `tests/support/loads.py` (efforts, lognormal lengths, public traces), several numbers of sequences, pools
from full half of the time to full once in a hundred steps. Beside it what P(resident > usable) alone would say.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

import numpy as np

from reasoningpool.sizing import observe
from reasoningpool.sizing.concurrency import BlockDemand, BlockMixture
from reasoningpool.sizing.preemption import Turnover, preemption
from support.loads import LOADS
from support.scheduler_simulation import Draw, Scheduler

BLOCK: Final = 16
SEQUENCES: Final = (8, 16, 32, 64, 128)
DEVIATIONS: Final = (2.25, 1.75, 1.25, 0.75, 0.0)
REQUESTS: Final = 8_000
BATCHED: Final = 8_192
FEWEST: Final = 20  # preempted requests below which a run tells nothing
BINS: Final = ((0.003, 0.01), (0.01, 0.03), (0.03, 0.1), (0.1, 0.5))


def main() -> None:
    """Simulated over expected share, by expected share."""
    rows = [row for make in LOADS.values() for row in _runs(make())]
    expected, simulated, overflow = np.array(rows).T
    print("Ratios at the 5th, 50th and 95th percentile of the runs.\n")
    print("| expected share | runs | simulated over expected share | simulated share over P(resident > usable) |")
    print("|---|---|---|---|")
    for low, high in BINS:
        chosen = (expected >= low) & (expected < high)
        cells = (
            ", ".join(f"{value:.2f}" for value in np.percentile(simulated[chosen] / base[chosen], [5, 50, 95]))
            for base in (expected, overflow)
        )
        print(f"| {100 * low:g} to {100 * high:g} % | {chosen.sum()} | {' | '.join(cells)} |")
    print()


def _runs(draw: Draw) -> Iterator[tuple[float, float, float]]:
    """Expected and simulated share and P(resident > usable) for all pools of one load."""
    mixture = _mixture(draw)
    demand, turnover = BlockDemand.of(mixture), Turnover.of(mixture)
    centres = mixture.starts + mixture.lengths / 2
    variance = np.dot(mixture.weights, (centres - demand.mean) ** 2 + mixture.lengths**2 / 12)
    for sequences, deviations in product(SEQUENCES, DEVIATIONS):
        pool = int(sequences * demand.mean + deviations * np.sqrt(sequences * variance))
        if pool < 1.05 * (mixture.starts + mixture.lengths).max():
            continue  # one request would not fit
        seen = Scheduler(draw, pool=pool, limit=sequences, block=BLOCK, batched=BATCHED).run(REQUESTS)
        if seen.preempted >= FEWEST:
            expected = preemption(demand.sum(sequences), turnover, sequences, pool)
            yield expected.share, seen.preempted_share, demand.overflow(sequences, pool)


def _mixture(draw: Draw) -> BlockMixture:
    classes = observe(*draw(np.random.default_rng(7), 20_000))
    requests, starts, lengths = (np.array(values) for values in (classes.requests, classes.prompts, classes.outputs))
    weights = requests * (lengths + starts / BATCHED)
    rounding = (BLOCK - 1) / (2 * BLOCK)
    return BlockMixture(weights / weights.sum(), requests / requests.sum(), starts / BLOCK + rounding, lengths / BLOCK)
