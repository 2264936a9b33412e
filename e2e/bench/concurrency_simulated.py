"""The benchmark's windows again in the simulated scheduler: the same requests in the same order, without a server.

What is left between the two is the server's; what is left between the simulation and the prediction is the model's. A
window of a few hundred requests says little of the long run (one long run in ten makes windows differ by half), but
the same window can be compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from bench.closed_loop import Job
from reasoningpool.simulation.scheduler import Draw, Scheduler

BATCHED: Final = 2048  # the engine's own max_num_batched_tokens on a CPU


def simulated_shares(
    rows: Sequence[Mapping[str, Any]], jobs: Callable[[int], Iterator[Job]], *, blocks: int, block: int
) -> dict[int, float]:
    """Preempted share by number of sequences over the windows in turns whose warm-up is on record."""
    requests: dict[int, int] = defaultdict(int)
    preempted: dict[int, int] = defaultdict(int)
    for row in rows:
        if "warm_requests" not in row or ".best." in row["round"]:
            continue
        seed, _, turn = row["round"].split(".")
        scheduler = Scheduler(
            _draw(jobs(int(seed) + int(turn))), pool=blocks, limit=row["sequences"], block=block, batched=BATCHED,
            empty=True,
        )  # fmt: skip
        seen = scheduler.run(row["requests"], warm_up=row["warm_requests"])
        requests[row["sequences"]] += seen.requests
        preempted[row["sequences"]] += seen.preempted
    return {number: preempted[number] / requests[number] for number in requests}


def _draw(stream: Iterator[Job]) -> Draw:
    def draw(_: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        chosen = [next(stream) for _ in range(count)]
        return np.array([len(job.prompt) for job in chosen]), np.array([job.output for job in chosen])

    return draw
