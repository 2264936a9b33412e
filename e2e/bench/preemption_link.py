"""How well the expected share of preempted requests agrees with a simulation of vLLM's scheduler.

All loads of `tests/support/loads.py` (efforts, lognormal lengths, public traces), several numbers of sequences, pools
from full half of the time to full once in a hundred steps. Beside it what P(resident > usable) alone would say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product, repeat
from typing import Final

import numpy as np

from reasoningpool.simulation.scheduler import Draw, Scheduler
from reasoningpool.sizing import observe
from reasoningpool.sizing.load.concurrency import BlockDemand, BlockMixture
from reasoningpool.sizing.load.preemption import Preemption, Turnover, preemption
from support.loads import LOADS

BLOCK: Final = 16
SEQUENCES: Final = (8, 16, 32, 64, 128)
DEVIATIONS: Final = (2.25, 1.75, 1.25, 0.75, 0.0)
REQUESTS: Final = 8_000
BATCHED: Final = 8_192
FEWEST: Final = 20  # preempted requests below which a run tells nothing
BINS: Final = ((0.003, 0.01), (0.01, 0.03), (0.03, 0.1), (0.1, 0.5))


@dataclass(frozen=True, slots=True)
class Simulated:
    """A pool under load, as expected and as simulated."""

    expected: Preemption
    turnover: Turnover
    overflow: float  # P(resident > usable)
    share: float  # of requests preempted in the simulation


def main() -> None:
    """Simulated over expected share, by expected share."""
    grid = list(product(SEQUENCES, DEVIATIONS))
    runs = [run for make in LOADS.values() for run in simulate(make(), grid, requests=REQUESTS, seeds=repeat(1))]
    expected, simulated, overflow = np.array([(run.expected.share, run.share, run.overflow) for run in runs]).T
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


def simulate(
    draw: Draw, grid: Iterable[tuple[int, float]], *, requests: int, seeds: Iterable[int]
) -> Iterator[Simulated]:
    """Pools for pairs of a number of sequences and how many deviations they are larger than what these hold on average.

    Left out are pools in which one request would not fit and runs with next to no preemption.
    """
    blocks = _mixture(draw)
    demand, turnover = BlockDemand.of(blocks), Turnover.of(blocks)
    centres = blocks.starts + blocks.lengths / 2
    variance = np.dot(blocks.weights, (centres - demand.mean) ** 2 + blocks.lengths**2 / 12)
    for (sequences, deviations), seed in zip(grid, seeds, strict=False):
        pool = int(sequences * demand.mean + deviations * np.sqrt(sequences * variance))
        if pool < 1.05 * (blocks.starts + blocks.lengths).max():
            continue
        scheduler = Scheduler(draw, pool=pool, limit=sequences, block=BLOCK, batched=BATCHED, seed=seed)
        seen = scheduler.run(requests)
        if seen.preempted >= FEWEST:
            expected = preemption(demand.sum(sequences), turnover, sequences, pool)
            yield Simulated(expected, turnover, demand.overflow(sequences, pool), seen.preempted_share)


def _mixture(draw: Draw) -> BlockMixture:
    classes = observe(*draw(np.random.default_rng(7), 20_000))
    requests, starts, lengths = (np.array(values) for values in (classes.requests, classes.prompts, classes.outputs))
    weights = requests * (lengths + starts / BATCHED)
    rounding = (BLOCK - 1) / (2 * BLOCK)
    return BlockMixture(weights / weights.sum(), requests / requests.sum(), starts / BLOCK + rounding, lengths / BLOCK)
