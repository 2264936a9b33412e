"""The engine in little preempts as the simulated scheduler does, which follows vLLM's."""

from __future__ import annotations

import random

import numpy as np
import pytest

from bench.admission_engine import CHEAP, Engine, Job
from bench.admission_simulated import NoGate, simulate
from reasoningpool.simulation.loads import classes
from reasoningpool.simulation.scheduler import Scheduler

EFFORTS = ((64, 32, 2), (96, 96, 2), (32, 256, 1))
POOL, BLOCK = 127, 32


@pytest.mark.parametrize("limit", [22, 25, 128])
def test_the_preempted_share_is_the_simulated_schedulers(limit: int) -> None:
    draw, chance = classes(*EFFORTS), np.random.default_rng(random.Random(limit).randrange(1 << 30))
    lengths = zip(*draw(chance, 3000), strict=True)
    jobs = (Job("any", int(prompt), int(output), int(output)) for prompt, output in lengths)
    seen = simulate(jobs, NoGate(), Engine(POOL, BLOCK, CHEAP, limit=limit), warm_up=200, clients=64)
    theirs = Scheduler(draw, pool=POOL, limit=limit, block=BLOCK, batched=2048).run(3000)
    # With 64 clients the queue is never empty, and never endless as theirs.
    assert seen.preempted_share == pytest.approx(theirs.preempted_share, abs=0.06)
    assert seen.mean_running == pytest.approx(theirs.running, rel=0.03)


def test_all_requests_are_served_whatever_is_preempted() -> None:
    jobs = [Job("any", 64, 200, 200) for _ in range(300)]
    seen = simulate(iter(jobs), NoGate(), Engine(40, 16, CHEAP), warm_up=0, clients=10)
    assert seen.preempted > 0
    assert all(job.made == job.output for job in jobs[: seen.requests // 2])
