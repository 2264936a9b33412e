"""The statistical policy against brute force; `test_preemption.py` has the simulations of requests in flight."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from reasoningpool.sizing import Effort, Limit, TokenQuantiles
from reasoningpool.sizing.kv.blocks import KVLayout
from reasoningpool.sizing.load.concurrency import EXACT_UP_TO, BlockDemand, BlockMixture, largest
from reasoningpool.sizing.load.demand import ResidentTokens, effort_tokens, resident_tokens
from unit.sizing.builders import EFFORTS, effort, planned, sizing_input

LAYOUT = KVLayout(
    block_size=16,
    bytes_per_block=1,
    bytes_per_token=1,
    full_groups=1,
    sliding_groups=0,
    sliding_window=0,
    state_groups=0,
    state_blocks=0,
    batches_in_flight=2,
)
LOGNORMAL = TokenQuantiles(p50=600, p90=2000, p99=5338)  # one lognormal through all three


def resident_of(efforts: Sequence[Effort]) -> ResidentTokens:
    inputs = sizing_input(efforts=tuple(efforts))
    return resident_tokens(inputs, effort_tokens(inputs, None), batched_tokens=1 << 40)


def demand_of(efforts: Sequence[Effort], *, shared_tokens: int = 0) -> BlockDemand:
    return BlockDemand.of(BlockMixture.of(resident_of(efforts), LAYOUT, shared_tokens))


def quantile(demand: BlockDemand, sequences: int, tail: float) -> int:
    """The smallest number of blocks exceeded with at most this probability."""
    return 10**6 - largest(lambda n: demand.overflow(sequences, 10**6 - n) <= tail, up_to=10**6)


def test_mean_resident_of_one_effort_is_the_prompt_and_half_the_output() -> None:
    assert resident_of([effort(prompt=1000, thinking=0, answer=500)]).mean == 1250


def test_long_runs_weigh_more_than_their_share_of_requests() -> None:
    """E[o (p + o/2)] / E[o] with o = 100 and 900 in equal shares: 0.1 x 1,050 + 0.9 x 1,450."""
    efforts = [
        effort("a", prompt=1000, thinking=0, answer=100),
        effort("b", prompt=1000, thinking=0, answer=900),
    ]
    assert resident_of(efforts).mean == pytest.approx(0.1 * 1050 + 0.9 * 1450)


def test_shares_may_have_any_scale() -> None:
    one, many = (resident_of([effort("a", share=1 * k), effort("b", thinking=0, share=3 * k)]).mean for k in (1, 250))
    assert one == pytest.approx(many)


@pytest.mark.parametrize("sequences", [1, 2, 5, EXACT_UP_TO])
def test_exact_overflow_equals_sampling(sequences: int) -> None:
    demand, resident = demand_of(EFFORTS), resident_of(EFFORTS)
    rng = np.random.default_rng(1)
    chosen = rng.choice(len(resident.weights), p=resident.weights, size=(40_000, sequences))
    tokens = resident.starts[chosen] + resident.lengths[chosen] * rng.random((40_000, sequences))
    sums = (tokens / 16 + 15 / 32).sum(axis=1)
    for at in (0.5, 0.9, 0.99):
        usable = float(np.quantile(sums, at))
        assert demand.overflow(sequences, usable) == pytest.approx(1 - at, abs=0.006)


def test_exact_and_normal_agree_where_they_meet() -> None:
    demand = demand_of(EFFORTS)
    for tail in (0.001, 0.01, 0.1, 0.5):
        exact, normal = quantile(demand, EXACT_UP_TO, tail), quantile(demand, EXACT_UP_TO + 1, tail)
        assert exact < normal
        assert normal - exact == pytest.approx(demand.mean, rel=0.1)


def test_overflow_falls_with_room_and_rises_with_sequences() -> None:
    demand = demand_of(EFFORTS)
    rooms = [demand.overflow(30, usable) for usable in range(15_000, 30_000, 50)]
    assert all(more <= less + 1e-12 for less, more in pairwise(rooms))
    crowds = [demand.overflow(n, 20_000) for n in range(1, 80)]
    assert all(more >= less - 1e-9 for less, more in pairwise(crowds))
    assert rooms[0] > 0.999
    assert crowds[0] == 0


def test_requests_of_one_fixed_size_are_counted_exactly() -> None:
    demand = demand_of([effort(prompt=15, thinking=0, answer=1)])
    assert demand.overflow(10, 100) == 0
    assert demand.overflow(10, 9) == 1


def test_quantiles_are_cut_at_the_budget() -> None:
    cut = effort(prompt=100, thinking=0, answer=700, output_distribution=LOGNORMAL)
    resident = resident_of([cut])
    assert resident.longest == 800
    assert resident.lengths.max() == 700
    assert np.isclose(resident.weights.sum(), 1)


def test_a_prompt_distribution_counts_the_template_too() -> None:
    inputs = sizing_input(
        efforts=(effort(prompt_distribution=TokenQuantiles(p50=100, p90=100, p99=100)),), template_overhead_tokens=32
    )
    resident = resident_tokens(inputs, effort_tokens(inputs, None), batched_tokens=1 << 40)
    assert set(np.round(resident.starts).astype(int)) == {132}


def test_statistical_is_at_least_the_worst_case() -> None:
    plan = planned(preemption_risk_permille=0)
    assert plan.max_num_seqs >= plan.worst_case_num_seqs
    assert plan.preempted_share_permille == 0


def test_more_risk_gives_more_sequences() -> None:
    numbers = [planned(preemption_risk_permille=risk).max_num_seqs for risk in (0, 1, 10, 50, 200, 500)]
    assert numbers == sorted(numbers)
    assert numbers[0] < numbers[-1]


def test_a_shared_prefix_is_held_once() -> None:
    alone, shared = planned(), planned(shared_prefix_tokens=6000)
    assert shared.worst_case_num_seqs > alone.worst_case_num_seqs
    own = shared.footprint_tokens - 6000 // 16 * 16
    assert shared.worst_case_num_seqs == (shared.usable_kv_tokens - 6000) // own
    assert shared.max_num_seqs - alone.max_num_seqs > shared.worst_case_num_seqs - alone.worst_case_num_seqs
    assert planned(shared_prefix_tokens=6000, prefix_caching=False).max_num_seqs == alone.max_num_seqs


def test_a_shared_prefix_leaves_no_request_less_than_nothing() -> None:
    """Prompts that are observed shorter than the prefix still hold their output."""
    resident = resident_of(
        [effort(prompt=8192, thinking=0, answer=160, prompt_distribution=TokenQuantiles(p50=10, p90=20, p99=30))]
    )
    assert BlockDemand.of(BlockMixture.of(resident, LAYOUT, 4096)).mean == pytest.approx(160 / 2 / 16 + 15 / 32)
    assert BlockDemand.of(BlockMixture.of(resident_of(EFFORTS), LAYOUT, 4096)).mean == pytest.approx(
        demand_of(EFFORTS).mean - 256
    )


def test_limits_other_than_the_pool_are_named() -> None:
    assert planned().limited_by is Limit.KV_CACHE
    assert planned(time_per_output_token_ms=20).limited_by is Limit.TIME_PER_OUTPUT_TOKEN
    small = planned(efforts=(effort(prompt=16, thinking=0, answer=16),))
    assert (small.limited_by, small.max_num_seqs) == (Limit.ENGINE_CAP, 1024)
