"""Where the two fitted constants of the preemption model come from, and two limits of it.

It runs the simulated scheduler on the loads of the tests and on further mixes of efforts, tries a grid of both
constants, and prints the root mean square of the logarithm of simulated over expected share, every load weighing the
same. Then a load whose outputs have one of two lengths, which is not among them; and how much less is preempted in a
short window after an empty start than in the long run.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, product
from typing import Final

import numpy as np

from bench.preemption_link import simulate
from reasoningpool.simulation.loads import classes
from reasoningpool.simulation.scheduler import Draw, Scheduler
from reasoningpool.sizing import constants as c
from support.loads import LOADS

SKEWED: Final = classes((64, 24, 6), (64, 96, 3), (64, 384, 1))  # the pool of that name of the concurrency benchmark
FURTHER: Final[dict[str, Draw]] = {
    "one in ten 16 times as long": SKEWED,
    "one in ten 20 times as long": classes((1000, 200, 9), (1000, 4000, 1)),
    "one in four 30 times as long": classes((100, 100, 3), (100, 3000, 1)),
    "short prompts, 1 to 4": classes((200, 500, 1), (200, 1000, 1), (200, 2000, 1)),
}
TWO_LENGTHS: Final = classes((4000, 1000, 1), (4000, 2000, 1))
SEQUENCES: Final = (16, 32, 64)
DEVIATIONS: Final = (2.25, 1.75, 1.25, 0.75)
REQUESTS: Final = 20_000
GROWTHS: Final = (0.05, 0.08, 0.10, 0.13, 0.15, 0.20, 0.25)
LOADED: Final = (0.25, 0.5, 0.75, 1.0)
STARTS: Final = 150


@dataclass(frozen=True, slots=True)
class Run:
    """One simulated pool: what the model gives before repeated preemptions are taken off, and the simulated share."""

    per_request: float
    growth_over_victim: float
    simulated: float

    def ratio(self, by_growth: float, by_load: float) -> float:
        """Simulated over expected share with these constants."""
        repeated = (1 + by_growth * self.growth_over_victim) * (1 + by_load * self.per_request)
        return self.simulated / min(1.0, self.per_request / repeated)


def main() -> None:
    """Print the grid, the two-length load and the short windows."""
    loads = {name: make() for name, make in LOADS.items()} | FURTHER
    runs = {name: found for name, draw in loads.items() if (found := _runs(draw))}
    print(f"{sum(map(len, runs.values()))} runs of {len(runs)} loads; root mean square of ln(simulated / expected)\n")
    print("| by growth | " + " | ".join(f"by load {each:g}" for each in LOADED) + " |")
    print("|---" * (len(LOADED) + 1) + "|")
    for growth in GROWTHS:
        print(f"| {growth:.2f} | " + " | ".join(f"{_error(runs, growth, load):.3f}" for load in LOADED) + " |")
    in_use = c.REPEAT_BY_GROWTH.value, c.REPEAT_BY_LOAD.value
    print(f"\nIn use: {in_use[0]:g} and {in_use[1]:g}. Simulated over expected share, geometric mean:\n")
    for name, found in (runs | {"outputs of two lengths": _runs(TWO_LENGTHS)}).items():
        logs = np.log([run.ratio(*in_use) for run in found])
        mean, least, most = np.exp([logs.mean(), logs.min(), logs.max()])
        print(f"- {name}: {mean:.2f} ({len(found)} runs, {least:.2f} to {most:.2f})")
    print()
    for sequences in (29, 32, 34):
        short, long = _short(sequences), _long(sequences)
        print(f"- {sequences} sequences: {100 * short:.1f} % in short windows, {100 * long:.1f} % in a long run")


def _runs(draw: Draw) -> list[Run]:
    grid = product(SEQUENCES, DEVIATIONS)
    return [
        Run(run.expected.per_request, run.turnover.biased_growth / run.expected.victim_blocks, run.share)
        for run in simulate(draw, grid, requests=REQUESTS, seeds=count())
    ]


def _error(runs: dict[str, list[Run]], by_growth: float, by_load: float) -> float:
    squares = [np.mean([np.log(run.ratio(by_growth, by_load)) ** 2 for run in found]) for found in runs.values()]
    return float(np.sqrt(np.mean(squares)))


def _short(sequences: int) -> float:
    """550 requests after 200 from an empty start, many times."""
    seen = [
        Scheduler(SKEWED, pool=191, limit=sequences, block=32, batched=2048, seed=seed, empty=True).run(
            550, warm_up=200
        )
        for seed in range(STARTS)
    ]
    return sum(each.preempted for each in seen) / sum(each.requests for each in seen)


def _long(sequences: int) -> float:
    seen = Scheduler(SKEWED, pool=191, limit=sequences, block=32, batched=2048, seed=STARTS).run(STARTS * 550)
    return seen.preempted_share
