"""Prompts beyond the budget are load all the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoningpool.capacity.plan import TierCapacity, plan_tier
from reasoningpool.capacity.prompts import long_prompts, with_room_for_prompts
from reasoningpool.requests.tier_requests import TierRequests
from reasoningpool.simulation.replicas import Objectives
from reasoningpool.sizing import SizingInput
from unit.capacity.builders import effort, log, requests
from unit.sizing.builders import accelerator, geometry, sizing_input

NONE = Objectives(first_answer_token_seconds=None, per_token_seconds=None, percentile=90)
COUNT = 500


def inputs(**changes: object) -> SizingInput:
    base = sizing_input(geometry=geometry("Qwen/Qwen3-32B-FP8"), accelerator=accelerator("H100-SXM-80GB"))
    return replace(base, **changes)


def logged(budget: int, median: float = 2000) -> TierRequests:
    rng = np.random.default_rng(7)
    prompt = (rng.lognormal(np.log(median), 0.7, COUNT).astype(int) + 1).tolist()
    output = rng.integers(100, 900, COUNT).tolist()
    whole = log(output, thinking=[n // 2 for n in output], prompt=prompt)
    return requests(whole, effort("high", 2048, 1024, prompt_tokens=budget))


def planned(budget: int, median: float = 2000, **changes: object) -> TierCapacity:
    found = plan_tier(inputs(**changes), logged(budget, median), rate=40, objectives=NONE)
    assert isinstance(found, TierCapacity)
    return found


@settings(deadline=None, max_examples=8)
@given(st.integers(1, 16_000), st.integers(1, 16_000))
def test_a_smaller_prompt_budget_never_needs_fewer_replicas_for_the_same_log(one: int, other: int) -> None:
    longest = int(logged(1).prompt.max())
    small, large = sorted((min(one, longest), min(other, longest)))
    assert planned(small).answer.replicas >= planned(large).answer.replicas


def test_a_budget_of_one_token_costs_what_the_whole_prompts_do() -> None:
    longest = int(logged(1).prompt.max())
    tiny, whole = planned(1), planned(longest)
    assert tiny.answer.replicas == whole.answer.replicas > 1
    assert tiny.service.prefill_seconds.tolist() == whole.service.prefill_seconds.tolist()
    assert whole.long_prompts is None


def test_shares_beyond_the_budget_and_beyond_the_context_are_counted_by_hand() -> None:
    whole = log([10] * 100, thinking=[5] * 100, prompt=[100] * 90 + [150] * 6 + [5000] * 4)
    found = long_prompts(inputs(), requests(whole, effort("high", 100, 100, prompt_tokens=100)), 400)
    assert found is not None
    assert (found.over_share, found.refused_share) == (pytest.approx(0.10), pytest.approx(0.04))
    assert (found.budget, found.covering) == (100, 5000)


def test_prompts_beyond_the_native_context_count_with_what_the_context_holds() -> None:
    native = inputs().geometry.native_context_tokens
    whole = log([10] * 100, thinking=[5] * 100, prompt=[100] * 99 + [10 * native])
    served = with_room_for_prompts(inputs(), requests(whole, effort("high", 2048, 1024, prompt_tokens=100)))
    assert served.served_prompt.max() == native - 3072 - inputs().template_overhead_tokens


def test_prompts_that_the_gpu_has_no_room_for_count_with_what_it_has() -> None:
    """A stated pool of 2 GiB holds 16,384 tokens of 128 KiB."""
    small = inputs(kv_cache_memory_bytes=2 << 30)
    whole = log([10] * 100, thinking=[5] * 100, prompt=[100] * 99 + [30_000])
    served = with_room_for_prompts(small, requests(whole, effort("high", 2048, 1024, prompt_tokens=100)))
    assert 8_000 < served.served_prompt.max() < 16_384
