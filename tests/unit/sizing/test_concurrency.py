"""The statistical policy against brute force and against simulations of requests in flight."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from reasoningpool.sizing import ConcurrencyPolicy, Effort, Limit, TokenQuantiles
from reasoningpool.sizing.blocks import KVLayout
from reasoningpool.sizing.concurrency import EXACT_UP_TO, BlockDemand, BlockMixture, largest
from reasoningpool.sizing.demand import ResidentTokens, effort_tokens, resident_tokens
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
    return resident_tokens(inputs, effort_tokens(inputs, None))


def demand_of(efforts: Sequence[Effort], *, shared_tokens: int = 0) -> BlockDemand:
    return BlockDemand.of(BlockMixture.of(resident_of(efforts), LAYOUT, shared_tokens))


def sampled_blocks(efforts: Sequence[Effort], *, slots: int, steps: int, seed: int = 0) -> np.ndarray:
    """Blocks held by `slots` closed-loop clients at every step: a finished request is followed by a new one."""
    rng = np.random.default_rng(seed)
    total = np.zeros(steps)
    shares = np.array([e.share for e in efforts])
    for _ in range(slots):
        held: list[np.ndarray] = []
        length = -int(rng.integers(0, 20_000))  # warm-up of random length, so that slots are not in step
        while length < steps:
            chosen = efforts[rng.choice(len(efforts), p=shares / shares.sum())]
            output = chosen.output_tokens
            if chosen.output_distribution is not None:
                quantiles = chosen.output_distribution
                sigma = np.log(quantiles.p90 / quantiles.p50) / 1.2816
                output = int(np.clip(np.exp(rng.normal(np.log(quantiles.p50), sigma)), 1, output))
            held.append(np.ceil((chosen.prompt_tokens + np.arange(1, output + 1)) / 16))
            length += output
        total += np.concatenate(held)[-steps - max(0, length - steps) :][:steps]
    return total


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


@pytest.mark.parametrize(
    ("name", "efforts"),
    [
        ("budgets", EFFORTS),
        ("chat", [effort(prompt=4000, thinking=0, answer=400)]),
        ("lognormal", [effort(prompt=2000, thinking=7000, answer=1000, output_distribution=LOGNORMAL)]),
    ],
)
def test_requests_in_flight_hold_what_the_formula_says(name: str, efforts: Sequence[Effort]) -> None:
    """Closed loop of 48 clients: mean within 3 %, 99 % quantile within 5 %."""
    held = sampled_blocks(efforts, slots=48, steps=60_000)
    demand = demand_of(efforts)
    assert 48 * demand.mean == pytest.approx(held.mean(), rel=0.03), name
    assert quantile(demand, 48, 0.01) == pytest.approx(np.quantile(held, 0.99), rel=0.05), name


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
    resident = resident_tokens(inputs, effort_tokens(inputs, None))
    assert set(np.round(resident.starts).astype(int)) == {132}


def preempted_share(efforts: Sequence[Effort], *, pool: int, limit: int, requests: int, seed: int = 3) -> float:
    """Share of requests preempted at least once by a server that recomputes: last in, first out, blocks of 16."""
    rng = np.random.default_rng(seed)
    shares = np.array([e.share for e in efforts])
    picks = rng.choice(len(efforts), p=shares / shares.sum(), size=requests + 4 * limit)
    waiting = [(int(i), efforts[int(k)].prompt_tokens, efforts[int(k)].output_tokens) for i, k in enumerate(picks)]
    waiting.reverse()
    running: list[list[int]] = []  # id, tokens held, tokens left
    preempted: set[int] = set()
    done = 0
    # Slots start at random phases, as if the server had run for long.
    while done < requests:
        held = sum(-(-r[1] // 16) for r in running)
        blocked = False
        while held > pool and running:
            victim = running.pop()
            held -= -(-victim[1] // 16)
            preempted.add(victim[0])
            waiting.append((victim[0], victim[1], victim[2]))
            blocked = True
        while not blocked and waiting and len(running) < limit:
            identifier, tokens, left = waiting[-1]
            if held + -(-tokens // 16) > pool:
                break
            waiting.pop()
            if not done and len(running) < limit and identifier not in preempted and identifier < limit:
                phase = int(rng.integers(0, left))
                tokens, left = tokens + phase, left - phase
            running.append([identifier, tokens, left])
            held += -(-tokens // 16)
        for request in running:
            request[1] += 16
            request[2] -= 16
        finished = [r for r in running if r[2] <= 0]
        done += len(finished)
        running = [r for r in running if r[2] > 0]
    return len({i for i in preempted if limit <= i < requests}) / (requests - limit)


def test_the_derived_number_keeps_preemption_within_the_risk_and_is_not_timid() -> None:
    plan = planned()
    pool = plan.num_blocks - 1
    at_plan = preempted_share(EFFORTS, pool=pool, limit=plan.max_num_seqs, requests=1500)
    beyond = preempted_share(EFFORTS, pool=pool, limit=plan.max_num_seqs + 5, requests=1500)
    assert at_plan <= 0.015
    assert beyond > 0.05


def test_no_preemption_at_the_worst_case_number() -> None:
    plan = planned(policy=ConcurrencyPolicy.WORST_CASE)
    assert plan.preempted_share_permille == 0
    assert preempted_share(EFFORTS, pool=plan.num_blocks - 1, limit=plan.max_num_seqs, requests=400) == 0


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
