"""The expected preemptions, and what requests in flight hold, against a request-level simulation of the scheduler."""

from __future__ import annotations

import numpy as np
import pytest

from reasoningpool.model import Geometry
from reasoningpool.simulation.loads import classes
from reasoningpool.simulation.scheduler import Draw, Scheduler
from reasoningpool.sizing import ConcurrencyPolicy, Effort, KVCacheDType, observe
from reasoningpool.sizing.kv.blocks import KVLayout
from reasoningpool.sizing.load.concurrency import BlockDemand, BlockMixture, largest
from reasoningpool.sizing.load.demand import effort_tokens, resident_tokens
from reasoningpool.sizing.load.preemption import Preemption, Turnover, preemption
from support.loads import LOADS
from unit.sizing.builders import CPU, GIB, dense_config, effort, planned, sizing_input

BLOCK = 16
TINY = Geometry.from_config(dense_config())
LAYOUT = KVLayout(
    block_size=BLOCK, bytes_per_block=1, bytes_per_token=1, full_groups=1, sliding_groups=0, sliding_window=0,
    state_groups=0, state_blocks=0, batches_in_flight=2,
)  # fmt: skip


def requests_of(name: str) -> int:
    """Enough requests for the tolerances: one in a hundred of the code trace's outputs is ten times the mean."""
    return 30_000 if name == "Azure code" else 8_000


def observed_effort(draw: Draw) -> Effort:
    """What a user has: a log of other requests of the same kind."""
    prompts, outputs = draw(np.random.default_rng(7), 20_000)
    return effort(prompt=int(prompts.max()), thinking=0, answer=int(outputs.max()), observed=observe(prompts, outputs))


def mixture(draw: Draw) -> BlockMixture:
    inputs = sizing_input(efforts=(observed_effort(draw),))
    return BlockMixture.of(resident_tokens(inputs, effort_tokens(inputs, None), batched_tokens=8192), LAYOUT, 0)


def expected(blocks: BlockMixture, *, sequences: int, pool: int) -> Preemption:
    turnover = Turnover.of(blocks)
    return preemption(BlockDemand.of(blocks).sum(sequences), turnover, sequences, pool)


@pytest.mark.parametrize(
    ("name", "sequences"),
    [
        *((name, 32) for name in LOADS),
        ("lognormal chat", 80),
        ("Azure conversations", 80),
        ("efforts that differ in both", 80),
    ],
)
def test_requests_in_flight_hold_what_is_expected(name: str, sequences: int) -> None:
    """Mean within 3 %, 99 % quantile within 5 %, where nothing is preempted; both ways of summing."""
    draw = LOADS[name]()
    served = Scheduler(draw, pool=1 << 40, limit=sequences).run(requests_of(name), sample_every=5)
    demand = BlockDemand.of(mixture(draw))
    assert sequences * demand.mean == pytest.approx(np.mean(served.held), rel=0.03)
    most = 1 << 24
    quantile = most - largest(lambda n: demand.overflow(sequences, most - n) <= 0.01, up_to=most)
    assert quantile == pytest.approx(np.quantile(served.held, 0.99), rel=0.05)


@pytest.mark.parametrize("name", LOADS)
@pytest.mark.parametrize("deviations", [0.5, 1.5])
def test_preemptions_and_waiting_are_those_of_the_simulation(name: str, deviations: float) -> None:
    """Within a factor of two, from a pool that is full every third minute to one that is full every fifteenth."""
    draw, sequences = LOADS[name](), 24
    blocks = mixture(draw)
    low, length, weight = blocks.starts, blocks.lengths, blocks.weights
    mean = np.dot(weight, low + length / 2)
    variance = np.dot(weight, (low + length / 2 - mean) ** 2 + length**2 / 12)
    pool = int(sequences * mean + deviations * np.sqrt(sequences * variance))
    seen = Scheduler(draw, pool=pool, limit=sequences).run(requests_of(name))
    answer = expected(blocks, sequences=sequences, pool=pool)
    assert answer.share == pytest.approx(seen.preempted_share, rel=0.5, abs=0.004)
    assert answer.per_request == pytest.approx(seen.preemptions_per_request, rel=0.5, abs=0.004)
    assert sequences - answer.waiting == pytest.approx(seen.running, rel=0.04)


@pytest.mark.parametrize(
    ("pool_mib", "efforts"),
    [
        (3, ((32, 16, 1), (32, 64, 1), (32, 192, 1))),
        (7, ((256, 16, 1), (256, 64, 1), (256, 192, 1))),
        (4, ((64, 32, 2), (96, 96, 2), (32, 256, 1))),
        (6, ((64, 24, 6), (64, 96, 3), (64, 384, 1))),
        (5, ((32, 64, 1), (32, 256, 1))),
    ],
)
@pytest.mark.parametrize("risk", [10, 50, 200])
def test_the_number_at_a_risk_is_the_simulations_to_one(
    pool_mib: int, efforts: tuple[tuple[int, int, int], ...], risk: int
) -> None:
    found = planned(
        accelerator=CPU, kv_cache_memory_bytes=pool_mib << 20, geometry=TINY, block_size=32,
        preemption_risk_permille=risk, kv_cache_dtype=KVCacheDType.AUTO,
        efforts=tuple(effort(f"e{i}", prompt=p, thinking=0, answer=o, share=s) for i, (p, o, s) in enumerate(efforts)),
    )  # fmt: skip
    assert found.max_num_seqs >= 16

    def share(sequences: int) -> float:
        scheduler = Scheduler(classes(*efforts), pool=found.num_blocks - 1, limit=sequences, block=32, batched=2048)
        return scheduler.run(6000).preempted_share

    assert share(found.max_num_seqs - 1) <= risk / 1000
    assert share(found.max_num_seqs + 2) > risk / 1000


def simulated_share(*, pool: int, limit: int) -> float:
    """The example of docs/sizing-concurrency.md: 8,192 prompt tokens and three efforts."""
    scheduler = Scheduler(LOADS["three efforts, long prompts"](), pool=pool, limit=limit)
    return scheduler.run(3000).preempted_share


def test_the_derived_number_keeps_preemption_within_the_risk_and_is_not_timid() -> None:
    plan = planned()
    assert simulated_share(pool=plan.num_blocks - 1, limit=plan.max_num_seqs) <= 0.01
    assert simulated_share(pool=plan.num_blocks - 1, limit=plan.max_num_seqs + 2) > 0.03


def test_no_preemption_at_the_worst_case_number() -> None:
    plan = planned(policy=ConcurrencyPolicy.WORST_CASE)
    assert plan.preempted_share_permille == 0
    assert simulated_share(pool=plan.num_blocks - 1, limit=plan.max_num_seqs) == 0


def test_a_full_pool_of_long_prompts_makes_requests_wait_instead_of_preempting_them() -> None:
    blocks = mixture(LOADS["Azure code"]())
    mean = float(np.dot(blocks.weights, blocks.starts + blocks.lengths / 2))
    full = expected(blocks, sequences=24, pool=int(24 * mean))
    assert full.waiting > 1
    assert full.share < 0.01


def test_requests_of_little_prompt_and_much_output_are_preempted_again_and_again() -> None:
    blocks = mixture(LOADS["three efforts, short prompts"]())
    mean = float(np.dot(blocks.weights, blocks.starts + blocks.lengths / 2))
    full = expected(blocks, sequences=24, pool=int(24 * mean))
    assert full.per_request > 2 * full.share > 0.5


def test_absurdly_many_sequences_are_answered_at_once() -> None:
    plan = planned(max_num_seqs=1_000_000_000, max_num_batched_tokens=1_000_000_000, kv_cache_memory_bytes=20 * GIB)
    assert 0 < plan.preempted_share_permille <= 1000
