"""Laws of the sizing that hold whatever the numbers."""

from dataclasses import fields, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from reasoningpool.catalog import models
from reasoningpool.model import Geometry, GeometryError, valid_tensor_parallel_sizes
from reasoningpool.model.sharding import check_shards
from reasoningpool.sizing import (
    AcceleratorFacts,
    ConcurrencyPolicy,
    DoesNotFit,
    Effort,
    KVCacheDType,
    SizingError,
    SizingInput,
    SizingPlan,
    TokenQuantiles,
    plan,
)

GIB = 1 << 30
LAW = settings(max_examples=80, deadline=None, derandomize=True, database=None)
GEOMETRIES = {
    name: Geometry.from_config(models()[name].config, models()[name].checkpoint_quantization)
    for name in (
        "Qwen/Qwen3-8B-FP8",
        "Qwen/Qwen3-32B-FP8",
        "Qwen/Qwen3-30B-A3B",
        "deepseek-ai/DeepSeek-R1",
        "openai/gpt-oss-20b",
        "openai/gpt-oss-120b",
        "Qwen/Qwen3-Next-80B-A3B-Thinking-FP8",
        "Qwen/Qwen3.5-27B-FP8",
    )
}


def suits(geometry: Geometry, ranks: int) -> bool:
    """Whether the quantized weights can be cut for so many ranks."""
    try:
        check_shards(geometry, ranks)
    except SizingError:
        return False
    return True


@st.composite
def quantiles(draw: st.DrawFn) -> TokenQuantiles:
    p50, p90, p99 = sorted(draw(st.lists(st.integers(1, 20_000), min_size=3, max_size=3)))
    return TokenQuantiles(p50=p50, p90=p90, p99=p99)


@st.composite
def efforts(draw: st.DrawFn, *, distributed: bool = True, largest: int = 15_000) -> tuple[Effort, ...]:
    found = []
    for index in range(draw(st.integers(1, 4))):
        known = distributed and draw(st.booleans())
        found.append(
            Effort(
                name=f"e{index}",
                prompt_tokens=draw(st.integers(1, largest)),
                thinking_tokens=draw(st.integers(0, largest)),
                answer_tokens=draw(st.integers(1, largest)),
                share=draw(st.integers(1, 100)),
                prompt_distribution=draw(quantiles()) if known and draw(st.booleans()) else None,
                output_distribution=draw(quantiles()) if known else None,
            )
        )
    return tuple(found)


@st.composite
def inputs(draw: st.DrawFn, *, tiers: st.SearchStrategy[tuple[Effort, ...]] | None = None) -> SizingInput:
    geometry = GEOMETRIES[draw(st.sampled_from(sorted(GEOMETRIES)))]
    ranks = [n for n in (1, 2, 4, 8) if geometry.num_attention_heads % n == 0 and suits(geometry, n)]
    return SizingInput(
        accelerator=AcceleratorFacts(
            product="custom",
            memory_bytes=draw(st.sampled_from([12, 24, 44, 79, 79, 94, 139, 178, 400])) * GIB,
            compute_capability=draw(st.sampled_from([(8, 0), (8, 9), (9, 0), (10, 0)])),
            memory_bandwidth_bytes_per_s=draw(st.sampled_from([None, 1e12, 4e12])),
        ),
        tensor_parallel_size=draw(st.sampled_from(ranks)),
        geometry=geometry,
        weight_bytes=None,
        kv_cache_dtype=draw(st.sampled_from([KVCacheDType.BF16, KVCacheDType.FP8])),
        memory_utilization_permille=draw(st.integers(500, 950)),
        kv_cache_memory_bytes=None,
        efforts=draw(tiers if tiers is not None else efforts()),
        policy=draw(st.sampled_from(ConcurrencyPolicy)),
        preemption_risk_permille=draw(st.integers(0, 300)),
        shared_prefix_tokens=draw(st.sampled_from([0, 0, 1000])),
        template_overhead_tokens=draw(st.sampled_from([0, 32])),
        prefix_caching=draw(st.booleans()),
        time_per_output_token_ms=draw(st.sampled_from([None, None, None, None, 30])),
    )


def sequences(given_input: SizingInput) -> int:
    """The derived number, 0 when nothing fits."""
    answer = plan(given_input)
    return answer.max_num_seqs if isinstance(answer, SizingPlan) else 0


@LAW
@given(inputs(), st.integers(1, 64 * GIB))
def test_more_memory_never_gives_fewer_sequences(base: SizingInput, more: int) -> None:
    memory = base.accelerator.memory_bytes
    assert memory is not None
    # Within one class of device: a larger class has larger batches, which take memory of their own.
    base = replace(base, max_num_batched_tokens=4096)
    larger = replace(base, accelerator=replace(base.accelerator, memory_bytes=memory + more))
    assert sequences(larger) >= sequences(base)


@LAW
@given(inputs(), st.integers(1, 300))
def test_a_larger_stated_pool_never_gives_fewer_sequences(base: SizingInput, tenths: int) -> None:
    roomy = replace(base.accelerator, memory_bytes=4000 * GIB)
    small = replace(base, accelerator=roomy, kv_cache_memory_bytes=tenths * GIB // 10)
    assert sequences(replace(small, kv_cache_memory_bytes=(tenths + 1) * GIB // 10)) >= sequences(small)


@LAW
@given(inputs())
def test_fp8_never_gives_fewer_sequences_than_bf16(base: SizingInput) -> None:
    fp8, bf16 = (sequences(replace(base, kv_cache_dtype=t)) for t in (KVCacheDType.FP8, KVCacheDType.BF16))
    assert fp8 >= bf16


@LAW
@given(inputs(tiers=efforts(distributed=False, largest=3000)), st.integers(2, 5))
def test_all_budgets_scaled_up_never_give_more_sequences(base: SizingInput, factor: int) -> None:
    base = replace(base, shared_prefix_tokens=0)
    scaled = tuple(
        replace(
            e,
            prompt_tokens=factor * e.prompt_tokens,
            thinking_tokens=factor * e.thinking_tokens,
            answer_tokens=factor * e.answer_tokens,
        )
        for e in base.efforts
    )
    assert sequences(replace(base, efforts=scaled)) <= sequences(base)


@LAW
@given(inputs(), st.integers(1, 5000))
def test_raising_the_largest_effort_never_gives_more_in_the_worst_case(base: SizingInput, more: int) -> None:
    base = replace(base, policy=ConcurrencyPolicy.WORST_CASE, time_per_output_token_ms=None)
    top = max(base.efforts, key=lambda e: e.prompt_tokens + e.output_tokens)
    raised = tuple(replace(e, answer_tokens=e.answer_tokens + more) if e is top else e for e in base.efforts)
    assert sequences(replace(base, efforts=raised)) <= sequences(base)


@LAW
@given(inputs(), st.integers(1, 500))
def test_more_risk_never_gives_fewer_sequences(base: SizingInput, more: int) -> None:
    riskier = replace(base, preemption_risk_permille=base.preemption_risk_permille + more)
    assert sequences(riskier) >= sequences(base)


@LAW
@given(inputs())
def test_statistical_is_never_below_the_worst_case(base: SizingInput) -> None:
    worst, statistical = (sequences(replace(base, policy=policy)) for policy in (
        ConcurrencyPolicy.WORST_CASE, ConcurrencyPolicy.STATISTICAL,
    ))  # fmt: skip
    assert statistical >= worst


@LAW
@given(inputs())
def test_a_plan_keeps_its_own_promises(base: SizingInput) -> None:
    answer = plan(base)
    if isinstance(answer, DoesNotFit):
        return
    assert 1 <= answer.max_num_seqs <= 1024
    assert answer.worst_case_num_seqs >= 1
    assert answer.max_num_batched_tokens >= answer.max_num_seqs
    assert answer.max_model_len <= base.geometry.native_context_tokens
    assert answer.preempted_share_permille <= base.preemption_risk_permille
    assert answer.kv_pool_bytes >= answer.num_blocks * answer.bytes_per_block
    assert answer.usable_kv_tokens == (answer.num_blocks - 1) * answer.block_size
    assert answer.mean_resident_tokens <= answer.footprint_tokens + 1
    assert_no_negative_figure(answer)


@LAW
@given(inputs(tiers=efforts(largest=60_000)), st.integers(0, 3))
def test_what_is_suggested_really_fits(base: SizingInput, explicit: int) -> None:
    base = replace(
        base,
        max_num_seqs=700 if explicit == 1 else None,
        max_model_len=min(32_768, base.geometry.native_context_tokens) if explicit == 2 else None,
        kv_cache_memory_bytes=GIB if explicit == 3 else None,
    )
    answer = plan(base)
    if isinstance(answer, SizingPlan):
        return
    assert answer.missing > 0
    assert answer.available >= 0
    assert answer.suggestions
    for change in answer.changes:
        assert change.inputs != base
        assert isinstance(plan(change.inputs), SizingPlan), change.text
        thinking = [[e.thinking_tokens > 0 for e in given.efforts] for given in (base, change.inputs)]
        assert thinking[0] == thinking[1], change.text


@LAW
@given(inputs(tiers=efforts(largest=60_000)), st.integers(1, 60_000))
def test_a_shorter_prompt_is_one_value_and_the_longest_that_fits(base: SizingInput, prompt: int) -> None:
    base = replace(base, efforts=tuple(replace(e, prompt_tokens=prompt) for e in base.efforts))
    answer = plan(base)
    if isinstance(answer, SizingPlan):
        return
    for change in answer.changes:
        found = change.inputs.efforts
        (shorter,) = {e.prompt_tokens for e in found}
        alone = [e.output_tokens for e in found] == [e.output_tokens for e in base.efforts]
        if shorter < prompt and alone:
            longer = tuple(replace(e, prompt_tokens=shorter + 1) for e in found)
            assert isinstance(plan(replace(change.inputs, efforts=longer)), DoesNotFit), change.text


@LAW
@given(inputs(), st.integers(10, 98))
def test_a_higher_utilization_is_the_lowest_that_fits(base: SizingInput, percent: int) -> None:
    answer = plan(replace(base, memory_utilization_permille=10 * percent))
    if isinstance(answer, SizingPlan):
        return
    for change in answer.changes:
        changed = change.inputs.memory_utilization_permille
        if changed > 10 * percent:
            below = replace(change.inputs, memory_utilization_permille=changed - 10)
            assert isinstance(plan(below), DoesNotFit), change.text


@LAW
@given(st.sampled_from(sorted(GEOMETRIES)), st.sampled_from([1, 2]))
def test_tensor_parallelism_splits_heads_and_replicates_latents(name: str, dtype_bytes: int) -> None:
    geometry = GEOMETRIES[name]
    whole = geometry.kv_bytes_per_token(dtype_bytes)
    for ranks in valid_tensor_parallel_sizes(geometry.num_attention_heads, 32):
        share = geometry.kv_bytes_per_token(dtype_bytes, tensor_parallel=ranks)
        if geometry.is_latent:
            assert share == whole
        elif geometry.kv_heads % ranks == 0:
            assert share * ranks == whole
        else:
            assert share * geometry.kv_heads >= whole


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**15), 10**15),
    st.integers(0, 64),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.sampled_from(["full_attention", "linear_attention", "sliding_attention", "x"]), max_size=5),
    st.dictionaries(st.sampled_from(["rope_type", "factor", "bits"]), st.integers() | st.text(), max_size=2),
)  # fmt: skip
CONFIG_KEYS = sorted({key for entry in models().values() for key in entry.config} | {
    "layer_types", "rope_scaling", "quantization_config", "multi_query", "index_topk", "text_config", "mlp_only_layers",
})  # fmt: skip


@settings(LAW, max_examples=300)
@given(st.sampled_from(sorted(models())), st.dictionaries(st.sampled_from(CONFIG_KEYS), JUNK, max_size=4))
def test_any_configuration_is_answered(name: str, damage: dict[str, Any]) -> None:
    config = dict(models()[name].config) | damage
    try:
        geometry = Geometry.from_config(config)
    except GeometryError as error:
        assert str(error)
        return
    answer = sized_or_refused(SizingInput(
        accelerator=AcceleratorFacts(
            product="X", memory_bytes=80 * GIB, compute_capability=(9, 0), memory_bandwidth_bytes_per_s=1e12
        ),
        tensor_parallel_size=1, geometry=geometry, weight_bytes=None, kv_cache_dtype=KVCacheDType.AUTO,
        memory_utilization_permille=920, kv_cache_memory_bytes=None,
        efforts=(Effort(name="e", prompt_tokens=100, thinking_tokens=10, answer_tokens=10, share=1),),
        policy=ConcurrencyPolicy.STATISTICAL, preemption_risk_permille=10,
    ))  # fmt: skip
    if answer is not None:
        assert_no_negative_figure(answer)


NUMBERS = (
    "tensor_parallel_size",
    "memory_utilization_permille",
    "kv_cache_memory_bytes",
    "weight_bytes",
    "preemption_risk_permille",
    "shared_prefix_tokens",
    "template_overhead_tokens",
    "speculative_tokens",
    "speculative_draft_layers",
    "draft_weight_bytes",
    "max_num_seqs",
    "max_model_len",
    "max_num_batched_tokens",
    "block_size",
    "time_per_output_token_ms",
    "load_bandwidth_bytes_per_s",
    "pre_stop_seconds",
)
ABSURD = st.one_of(st.integers(-2, 3), st.sampled_from([10**6, 10**9, 10**12, 10**18]))


@settings(LAW, max_examples=300)
@given(
    inputs(),
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(NUMBERS, ABSURD),
    ),
    st.dictionaries(st.sampled_from(["prompt_tokens", "thinking_tokens", "answer_tokens"]), ABSURD, max_size=2),
)  # fmt: skip
def test_any_numbers_are_answered(base: SizingInput, changes: dict[str, Any], budgets: dict[str, Any]) -> None:
    changed = replace(base, **changes, efforts=(replace(base.efforts[0], **budgets), *base.efforts[1:]))
    answer = sized_or_refused(changed)
    if answer is not None:
        assert_no_negative_figure(answer)


def sized_or_refused(given_input: SizingInput) -> SizingPlan | DoesNotFit | None:
    """The answer, `None` for a refusal, which has words."""
    try:
        return plan(given_input)
    except SizingError as error:
        assert str(error)
        return None


def assert_no_negative_figure(answer: SizingPlan | DoesNotFit) -> None:
    for field in fields(answer):
        value = getattr(answer, field.name)
        if isinstance(value, (int, float)):
            assert value >= 0, field.name
    if isinstance(answer, DoesNotFit):
        assert answer.missing > 0
    assert not [step for step in answer.steps if step.value.startswith("-")]
