"""A plan that knows the pool an engine reported: the smaller of the two counts, in tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoningpool.model import Geometry
from reasoningpool.sizing import DoesNotFit, SizingError, SizingPlan, plan
from unit.sizing.builders import CPU, dense_config, effort, sizing_input

LAW = settings(max_examples=60, deadline=None, derandomize=True, database=None)
SMALL = sizing_input(
    accelerator=CPU,
    geometry=Geometry.from_config(dense_config(), None),
    kv_cache_memory_bytes=32 << 20,
    efforts=(effort(prompt=1024, thinking=1024, answer=256),),
)


def measured(inputs, blocks: int, size: int):
    return plan(replace(inputs, measured_num_blocks=blocks, measured_block_size=size))


def test_smaller_pool_takes_the_place_of_the_models() -> None:
    smaller = measured(SMALL, 128, 128)
    assert isinstance(smaller, SizingPlan)
    assert (smaller.num_blocks, smaller.usable_kv_tokens) == (128, 127 * 128)
    stated = plan(replace(SMALL, kv_cache_memory_bytes=smaller.kv_pool_bytes))
    assert isinstance(stated, SizingPlan)
    assert smaller.max_num_seqs == stated.max_num_seqs
    (step,) = [step for step in smaller.steps if step.name == "KV pool"]
    assert step.formula == "what an engine reported"


def test_pool_in_other_blocks_counts_by_its_tokens() -> None:
    fine, coarse = measured(SMALL, 1024, 16), measured(SMALL, 128, 128)
    assert isinstance(fine, SizingPlan)
    assert isinstance(coarse, SizingPlan)
    assert (fine.num_blocks, fine.max_num_seqs) == (coarse.num_blocks, coarse.max_num_seqs)


def test_pool_too_small_for_one_request_does_not_fit() -> None:
    answer = measured(SMALL, 4, 128)
    assert isinstance(answer, DoesNotFit)
    assert answer.missing > 0


@pytest.mark.parametrize(("blocks", "size"), [(0, 16), (-1, 16), (16, 0)])
def test_nonsense_is_refused(blocks: int, size: int) -> None:
    with pytest.raises(SizingError):
        measured(SMALL, blocks, size)


@LAW
@given(blocks=st.integers(2, 60_000), more=st.integers(0, 10_000))
def test_larger_measured_kv_pool_never_lowers_max_num_seqs(blocks: int, more: int) -> None:
    inputs = sizing_input()
    model = plan(inputs)
    small, large = measured(inputs, blocks, 16), measured(inputs, blocks + more, 16)
    assert isinstance(model, SizingPlan)
    if isinstance(small, SizingPlan):
        assert isinstance(large, SizingPlan)
        assert small.max_num_seqs <= large.max_num_seqs <= model.max_num_seqs
        assert small.usable_kv_tokens <= (blocks - 1) * 16


def test_larger_pool_than_the_models_changes_nothing() -> None:
    model, found = plan(SMALL), measured(SMALL, 1 << 20, 128)
    assert found == model
