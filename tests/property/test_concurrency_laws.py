"""Laws of the number of sequences and of the curve that hold whatever the numbers."""

from dataclasses import replace
from itertools import pairwise
from math import inf, isfinite, nan

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from property.test_sizing_laws import GIB, LAW, efforts, inputs, sequences
from reasoningpool.sizing import (
    ConcurrencyPolicy,
    Effort,
    ObservedTokens,
    SizingError,
    SizingInput,
    SizingPlan,
    observe,
    plan,
)
from reasoningpool.sizing import throughput_curve as curve


def plan_of(given_input: SizingInput) -> SizingPlan | None:
    answer = plan(given_input)
    return answer if isinstance(answer, SizingPlan) else None


@LAW
@given(inputs())
def test_along_the_curve_preemption_and_running_never_fall(base: SizingInput) -> None:
    points = curve(base)
    for point in points:
        figures = (
            point.running, point.overflow, point.preempted_share, point.preemptions_per_request,
            point.time_per_output_token_ms, point.output_tokens_per_second,
        )  # fmt: skip
        assert all(isfinite(figure) and figure >= 0 for figure in figures)
        assert point.preempted_share <= 1
        assert point.running <= point.sequences
    for less, more in pairwise(points):
        assert less.preempted_share <= more.preempted_share
        assert less.running <= more.running + 1e-9


@LAW
@given(inputs())
def test_the_curve_says_of_the_plans_number_what_the_plan_says(base: SizingInput) -> None:
    answer = plan_of(base)
    own = [point for point in curve(base) if point.derived]
    if answer is None:
        assert not own
        return
    (point,) = own
    assert point.sequences == answer.max_num_seqs
    assert abs(1000 * point.preempted_share - answer.preempted_share_permille) <= 1


@LAW
@given(inputs(), st.integers(1, 1000), st.integers(1, 20))
def test_a_larger_pool_preempts_no_more_at_the_same_number(base: SizingInput, limit: int, more: int) -> None:
    roomy = replace(base.accelerator, memory_bytes=4000 * GIB)
    free = replace(base, accelerator=roomy, policy=ConcurrencyPolicy.STATISTICAL, preemption_risk_permille=1000)
    pools = [replace(free, kv_cache_memory_bytes=size * GIB, max_num_batched_tokens=8192) for size in (20, 20 + more)]
    carried = sequences(pools[0])  # where the pool is full all the time, the estimate is coarse
    small, large = (plan_of(replace(pool, max_num_seqs=max(1, min(limit, carried)))) for pool in pools)
    if small is not None and large is not None:
        assert large.preempted_share_permille <= small.preempted_share_permille


@LAW
@given(inputs(), st.integers(1, 2000))
def test_a_shared_prefix_never_gives_fewer_sequences(base: SizingInput, shared: int) -> None:
    own, together = (replace(base, shared_prefix_tokens=tokens, prefix_caching=True) for tokens in (0, shared))
    assert sequences(together) >= sequences(own)


@LAW
@given(inputs(), st.integers(1, 8))
def test_lookahead_never_gives_more_in_the_worst_case(base: SizingInput, tokens: int) -> None:
    one, other = plan_of(base), plan_of(replace(base, speculative_tokens=tokens))
    if one is not None and other is not None:
        assert other.worst_case_num_seqs <= one.worst_case_num_seqs


@LAW
@given(inputs(), st.integers(1, 200), st.integers(1, 200))
def test_a_stricter_objective_never_gives_more(base: SizingInput, objective: int, laxer: int) -> None:
    strict, lax = (replace(base, time_per_output_token_ms=ms) for ms in (objective, objective + laxer))
    assert sequences(strict) <= sequences(lax)


@LAW
@given(efforts(distributed=False), inputs())
def test_the_scale_and_the_order_of_shares_do_not_matter(tiers: tuple[Effort, ...], base: SizingInput) -> None:
    scaled = tuple(replace(effort, share=effort.share * 7) for effort in reversed(tiers))
    assert sequences(replace(base, efforts=tiers)) == sequences(replace(base, efforts=scaled))


NUMBER = st.floats(allow_nan=True) | st.integers(-3, 10**7) | st.sampled_from([0, 1, inf, nan])


@LAW
@given(st.lists(st.tuples(NUMBER, NUMBER), max_size=60))
def test_any_log_is_summed_up_or_refused(pairs: list[tuple[float, float]]) -> None:
    prompts, outputs = [p for p, _ in pairs], [o for _, o in pairs]
    try:
        found = observe(prompts, outputs)
    except SizingError as error:
        assert str(error)
        return
    kept = [(p, o) for p, o in pairs if o >= 1]
    held = sum(o * (p + o / 2) for p, o in kept)
    assert np.isclose(held, sum(n * o * (p + o / 2) for n, p, o in _classes(found)), rtol=1e-6)
    assert len(found.requests) <= len(kept)


def _classes(found: ObservedTokens) -> list[tuple[float, float, float]]:
    return list(zip(found.requests, found.prompts, found.outputs, strict=True))


@LAW
@given(inputs(), st.lists(st.tuples(*[NUMBER] * 3), max_size=6))
def test_any_observation_is_planned_with_or_refused(base: SizingInput, rows: list[tuple[float, ...]]) -> None:
    columns = [tuple(row[i] for row in rows) for i in range(3)]
    changed = replace(base, efforts=(replace(base.efforts[0], observed=ObservedTokens(*columns)), *base.efforts[1:]))
    try:
        answer = plan(changed)
    except SizingError as error:
        assert str(error)
        return
    if isinstance(answer, SizingPlan):
        assert 0 <= answer.preempted_share_permille <= 1000
        assert 1 <= answer.mean_resident_tokens <= answer.footprint_tokens
