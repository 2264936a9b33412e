"""The whole calculation: the worked example, explicit values, the CPU, times, words, and budgets that do not fit."""

import re
from dataclasses import fields, replace
from math import ceil
from typing import Any

import pytest

from reasoningpool.model import Geometry, GeometryError
from reasoningpool.sizing import (
    ConcurrencyPolicy,
    DoesNotFit,
    Effort,
    FitUnit,
    KVCacheDType,
    Limit,
    SizingError,
    SizingPlan,
    plan,
)
from unit.sizing.builders import (
    CPU,
    EFFORTS,
    GIB,
    accelerator,
    custom_gpu,
    dense_config,
    effort,
    geometry,
    planned,
    sizing_input,
    unfit,
)

TINY = Geometry.from_config(dense_config())
CPU_TIER: dict[str, Any] = {
    "accelerator": CPU,
    "geometry": TINY,
    "kv_cache_dtype": KVCacheDType.AUTO,
    "kv_cache_memory_bytes": 64 << 20,
    "efforts": (effort(prompt=512, thinking=128, answer=128),),
}


def test_the_worked_example() -> None:
    """Qwen3-32B in fp8: 131,072 bytes per token on one GPU, 65,536 on each of two."""
    one, two = planned(), planned(tensor_parallel_size=2)
    assert (one.kv_bytes_per_token, two.kv_bytes_per_token) == (131_072, 65_536)
    assert one.bytes_per_block == 16 * 131_072
    assert one.num_blocks == one.kv_pool_bytes // one.bytes_per_block
    assert one.usable_kv_tokens == (one.num_blocks - 1) * 16
    assert one.footprint_tokens == one.max_model_len == 13_312
    assert one.mean_resident_tokens == 10_191
    assert one.worst_case_num_seqs == one.usable_kv_tokens // 13_312
    assert one.worst_case_num_seqs < one.max_num_seqs < one.usable_kv_tokens // one.mean_resident_tokens
    assert one.limited_by is Limit.KV_CACHE
    assert 0 < one.preempted_share_permille <= 10
    assert one.max_num_batched_tokens == 8192
    assert one.warnings == ()


def test_the_memory_figures_add_up() -> None:
    found = planned()
    parts = (
        found.weight_bytes_per_gpu + found.activation_bytes + found.graph_bytes + found.overhead_bytes
        + found.reserve_bytes + found.kv_pool_bytes
    )  # fmt: skip
    memory = accelerator("H100-SXM-80GB").memory_bytes
    assert memory is not None
    assert parts == ceil(memory * 920 / 1000)


def test_the_number_is_the_largest_that_its_own_memory_allows() -> None:
    """Stating one sequence more than derived leaves less pool and exceeds the risk."""
    found = planned()
    more = planned(max_num_seqs=found.max_num_seqs + 1)
    assert more.kv_pool_bytes <= found.kv_pool_bytes
    assert more.preempted_share_permille > 10


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_latent_attention_is_whole_on_every_rank(ranks: int) -> None:
    found = planned(
        geometry=geometry("deepseek-ai/DeepSeek-R1"), tensor_parallel_size=ranks, accelerator=custom_gpu(1400)
    )
    assert found.kv_bytes_per_token == 35_136
    assert found.block_size == 64


def test_block_sizes_by_device() -> None:
    assert planned(**CPU_TIER).block_size == 128
    assert planned().block_size == 16
    assert planned(block_size=32).block_size == 32
    latent = {"geometry": geometry("deepseek-ai/DeepSeek-R1"), "tensor_parallel_size": 8}
    assert planned(**latent, accelerator=custom_gpu(200, capability=(8, 0))).block_size == 16
    assert planned(**latent, accelerator=custom_gpu(200, capability=(10, 0))).block_size == 32
    hopper = custom_gpu(200, capability=(9, 0))
    assert planned(**latent, accelerator=hopper).block_size == 64  # FlashMLA, for the fp8 KV of the example
    assert planned(**latent, accelerator=hopper, kv_cache_dtype=KVCacheDType.BF16).block_size == 16


@pytest.mark.parametrize(
    ("product", "expected"),
    [("B200-180GB", 16_384), ("H200-SXM-141GB", 8192), ("A100-SXM-80GB", 2048), ("L40S-48GB", 2048)],
)
def test_batched_tokens_by_class_of_device(product: str, expected: int) -> None:
    found = planned(accelerator=accelerator(product), geometry=geometry("Qwen/Qwen3-8B-FP8"))
    assert found.max_num_batched_tokens == expected


def test_auto_is_the_models_16_bit_type() -> None:
    found = planned(kv_cache_dtype=KVCacheDType.AUTO, geometry=geometry("Qwen/Qwen3-8B"))
    assert (found.kv_cache_dtype, found.kv_bytes_per_token) == (KVCacheDType.BF16, 147_456)


def test_the_cpu_takes_its_stated_pool() -> None:
    found = planned(**CPU_TIER)
    assert found.kv_pool_bytes == 64 << 20
    assert found.kv_bytes_per_token == 1024
    assert found.num_blocks == 512
    assert found.usable_kv_tokens == 511 * 128
    assert found.time_per_output_token_ms == 100
    assert found.shutdown_timeout_seconds == 36  # 256 tokens at 100 ms, 10 s for the prefill
    assert found.termination_grace_period_seconds == 51
    assert found.startup_budget_seconds == 600


def test_cpu_without_a_kv_pool_names_the_field_to_set() -> None:
    with pytest.raises(SizingError, match="kvCacheMemory: 4Gi") as caught:
        plan(sizing_input(**(CPU_TIER | {"kv_cache_memory_bytes": None})))
    assert caught.value.attribute == "kv_cache_memory_bytes"


def test_a_stated_pool_replaces_the_memory_model_on_a_gpu() -> None:
    found = planned(kv_cache_memory_bytes=20 * GIB, memory_utilization_permille=100)
    assert found.kv_pool_bytes == 20 * GIB


def test_a_stated_pool_that_leaves_no_room_for_activations_is_warned_of() -> None:
    found = planned(kv_cache_memory_bytes=45 * GIB)
    assert any("may run out of memory" in warning.message for warning in found.warnings)
    assert "weights and the stated KV pool exceed" in unfit(kv_cache_memory_bytes=50 * GIB).what


def test_explicit_sequences_win_and_are_warned_of_beyond_the_derived_number() -> None:
    derived = planned().max_num_seqs
    more = planned(max_num_seqs=3 * derived)
    assert (more.max_num_seqs, more.limited_by) == (3 * derived, Limit.EXPLICIT)
    assert any(f"exceeds the derived {derived}" in warning.message for warning in more.warnings)
    assert more.preempted_share_permille > 10
    less = planned(max_num_seqs=2)
    assert (less.max_num_seqs, less.limited_by, less.warnings) == (2, Limit.EXPLICIT, ())
    assert less.preempted_share_permille == 0


def test_an_explicit_length_wins_and_says_what_it_cuts() -> None:
    short = planned(max_model_len=10_000)
    assert (short.max_model_len, short.footprint_tokens) == (10_000, 10_000)
    assert [w for w in short.warnings if "effort 'high'" in w.message and "13,312" in w.message]
    assert not [w for w in short.warnings if "effort 'low'" in w.message]
    long = planned(max_model_len=20_000)
    assert long.max_model_len == 20_000
    assert any("exceeds the largest footprint" in warning.message for warning in long.warnings)
    assert long.max_num_seqs == planned().max_num_seqs


def test_an_explicit_length_beyond_the_native_context_is_refused() -> None:
    with pytest.raises(SizingError, match="native 40,960") as caught:
        plan(sizing_input(max_model_len=50_000))
    assert caught.value.attribute == "max_model_len"


def test_batched_tokens_below_sequences_are_refused() -> None:
    with pytest.raises(SizingError, match="below maxNumSeqs") as caught:
        plan(sizing_input(max_num_seqs=512, max_num_batched_tokens=256))
    assert caught.value.attribute == "max_num_batched_tokens"
    assert planned(max_num_batched_tokens=8, efforts=EFFORTS).max_num_seqs <= 8


def test_the_length_never_exceeds_the_native_context() -> None:
    exact = Geometry.from_config(dense_config(max_position_embeddings=1000))
    found = planned(geometry=exact, efforts=(effort(prompt=500, thinking=250, answer=250),))
    assert (found.footprint_tokens, found.max_model_len) == (1008, 1000)


def test_the_chat_template_and_lookahead_count() -> None:
    found = planned(template_overhead_tokens=32, speculative_tokens=3)
    assert found.footprint_tokens == ceil((8192 + 32 + 5120 + 3) / 16) * 16


def test_draft_layers_take_kv_too() -> None:
    assert planned(speculative_draft_layers=2).kv_bytes_per_token == 131_072 * 66 // 64


def test_weights_of_draft_layers_take_memory() -> None:
    layer = geometry("deepseek-ai/DeepSeek-R1").layer_weight_bytes
    assert 10e9 < layer < 12e9  # one MTP layer of DeepSeek-R1, without its embedding
    with_draft = planned(draft_weight_bytes=2 * GIB, tensor_parallel_size=2)
    without = planned(tensor_parallel_size=2)
    assert with_draft.weight_bytes_per_gpu - without.weight_bytes_per_gpu == GIB
    assert with_draft.kv_pool_bytes < without.kv_pool_bytes


def test_ranks_must_suit_the_kv_heads_too() -> None:
    with pytest.raises(SizingError, match=r"8 KV heads; sizes up to 5 that do: 1, 2, 4") as caught:
        plan(sizing_input(geometry=geometry("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"), tensor_parallel_size=5))
    assert caught.value.attribute == "tensor_parallel_size"


def test_hybrids_hold_state_blocks() -> None:
    model = {"geometry": geometry("Qwen/Qwen3-Next-80B-A3B-Thinking-FP8"), "tensor_parallel_size": 2}
    found = planned(**model)
    assert found.per_request_constant_bytes == 6 * found.bytes_per_block
    assert found.usable_kv_tokens == (found.num_blocks - 1) * found.block_size
    plain = planned(**model, prefix_caching=False)
    assert plain.per_request_constant_bytes == 3 * plain.bytes_per_block
    assert plain.max_num_seqs > found.max_num_seqs
    speculating = planned(**model, speculative_tokens=2, speculative_draft_layers=1)
    assert speculating.per_request_constant_bytes == 12 * speculating.bytes_per_block


def test_prefills_of_sliding_window_models_are_left_room_for() -> None:
    model = {"geometry": geometry("openai/gpt-oss-20b"), "policy": ConcurrencyPolicy.WORST_CASE}
    found = planned(**model)
    per_request = found.footprint_tokens // 16 + 9
    in_flight = 2 * 8192 // 16
    assert found.max_num_seqs == (found.num_blocks - 1 - in_flight) // per_request


def test_an_objective_bounds_the_sequences_and_sets_the_times() -> None:
    found = planned(time_per_output_token_ms=25)
    assert (found.limited_by, found.time_per_output_token_ms) == (Limit.TIME_PER_OUTPUT_TOKEN, 25)
    assert 1 < found.max_num_seqs < planned().max_num_seqs
    assert found.shutdown_timeout_seconds == ceil(5120 * 0.025) + 10
    loose = planned(time_per_output_token_ms=60)
    assert loose.limited_by is Limit.KV_CACHE
    assert loose.shutdown_timeout_seconds == ceil(5120 * 0.06) + 10


def test_an_objective_out_of_reach_leaves_one_sequence_and_a_warning() -> None:
    found = planned(time_per_output_token_ms=1)
    assert found.max_num_seqs == 1
    assert any("below the" in warning.message for warning in found.warnings)
    assert found.time_per_output_token_ms > 10


def test_times_of_a_large_model() -> None:
    found = planned(
        geometry=geometry("deepseek-ai/DeepSeek-R1"),
        tensor_parallel_size=8,
        accelerator=accelerator("H200-SXM-141GB"),
        load_bandwidth_bytes_per_s=1_000_000_000,
        pre_stop_seconds=10,
    )
    assert 1200 < found.startup_budget_seconds < 1500  # 673 GB at 1 GB/s with half as much again, and 300 s
    assert found.termination_grace_period_seconds == 10 + found.shutdown_timeout_seconds + 15


def test_eager_mode_frees_the_graphs() -> None:
    assert planned(enforce_eager=True).graph_bytes == 0


def test_little_memory_outside_the_share_is_warned_of() -> None:
    found = planned(accelerator=custom_gpu(15.77, capability=(7, 5)), geometry=TINY, memory_utilization_permille=950,
                    efforts=(effort(prompt=4096, thinking=0, answer=512),))  # fmt: skip
    assert any("outside the engine's share" in warning.message for warning in found.warnings)


def test_the_steps_tell_the_calculation_in_order() -> None:
    steps = {step.name: step for step in planned().steps}
    assert list(steps) == [
        "KV bytes per token", "engine's share", "weights", "other persistent memory", "activation peak", "CUDA graphs",
        "likeliest KV pool", "reserve", "KV pool", "usable KV tokens", "largest footprint", "mean resident",
        "sequences in the worst case", "max_num_seqs", "preempted requests", "max_model_len", "max_num_batched_tokens",
        "shutdown timeout",
    ]  # fmt: skip
    assert steps["KV bytes per token"].value == "131,072 bytes"
    assert steps["max_num_seqs"].value == str(planned().max_num_seqs)
    assert steps["mean resident"].value == "10,191 tokens"
    assert "1 % of requests preempted" in steps["max_num_seqs"].formula


def test_the_same_input_gives_the_same_answer() -> None:
    assert planned() == planned()


# --- what does not fit -----------------------------------------------------------------------------------------------


def applied(answer: DoesNotFit) -> SizingPlan:
    """The plan after the nearest change."""
    assert answer.changes
    assert answer.suggestions == tuple(change.text for change in answer.changes)
    result = plan(answer.changes[0].inputs)
    assert isinstance(result, SizingPlan), (answer.suggestions, result)
    return result


def test_budgets_beyond_the_native_context_say_by_how_much() -> None:
    answer = unfit(efforts=(effort(prompt=30_000, thinking=20_000, answer=1000),))
    assert "effort 'high' needs 51,000 tokens" in answer.what
    assert "native context is 40,960, 10,040 too few" in answer.what
    assert (answer.unit, answer.needed, answer.available, answer.missing) == (FitUnit.TOKENS, 51_000, 40_960, 10_040)
    shown = {step.name: step.value for step in answer.steps}
    assert (shown["needed"], shown["available"], shown["missing"]) == (
        "51,000 tokens", "40,960 tokens", "10,040 tokens",
    )  # fmt: skip
    assert answer.suggestions[0] == "shorten the budgets: thinkingTokens of effort 'high' to 9,960 (now 20,000)"
    assert applied(answer).max_model_len == 40_960


def test_a_long_prompt_gives_way_with_one_value_for_all_efforts_and_thinking_stays() -> None:
    efforts = tuple(replace(one, prompt_tokens=100_000) for one in EFFORTS)
    answer = unfit(efforts=efforts)
    shorter = {one.prompt_tokens for one in answer.changes[0].inputs.efforts}
    assert shorter == {40_960 - 4096 - 1024}
    assert answer.suggestions == ("shorten the budgets: promptTokens to 35,840 (now 100,000)",)
    assert [one.output_tokens for one in answer.changes[0].inputs.efforts] == [one.output_tokens for one in EFFORTS]
    applied(answer)


def test_budgets_of_which_none_alone_is_enough_are_cut_in_proportion() -> None:
    answer = unfit(efforts=(effort(prompt=100_000, thinking=100_000, answer=100_000),))
    (change,) = answer.changes
    (cut,) = change.inputs.efforts
    assert (
        max(cut.prompt_tokens, cut.thinking_tokens, cut.answer_tokens)
        - min(cut.prompt_tokens, cut.thinking_tokens, cut.answer_tokens)
        <= 1
    )
    applied(answer)


def test_a_shared_prefix_is_not_cut_with_the_prompt() -> None:
    answer = unfit(efforts=(effort(prompt=39_000),), shared_prefix_tokens=38_000)
    assert [one.prompt_tokens for change in answer.changes for one in change.inputs.efforts] == [38_000]
    applied(answer)


def test_a_stated_length_is_left_out_with_budgets_that_are_too_long() -> None:
    answer = unfit(efforts=(effort(prompt=30_000, thinking=5000),), accelerator=custom_gpu(39), max_model_len=36_100)
    texts = [text for text in answer.suggestions if "budgets:" in text]
    assert texts
    assert all(text.startswith("leave maxModelLen out and shorten the budgets") for text in texts)
    assert not [text for text in answer.suggestions if text.startswith("set maxModelLen")]
    applied(answer)


def test_absurd_budgets_are_answered_the_same_way() -> None:
    answer = unfit(efforts=(effort(prompt=8192, thinking=10**12, answer=1024),))
    assert "1,000,000,009,216 tokens" in answer.what
    assert applied(answer).max_model_len == 40_960


def test_weights_larger_than_the_gpu_ask_for_more_gpus() -> None:
    answer = unfit(geometry=geometry("meta-llama/Llama-3.3-70B-Instruct"))
    assert "leave nothing for KV" in answer.what
    assert answer.needed > answer.available > 0
    assert answer.suggestions[0] == "set perReplica to 4 GPUs" or "2 GPUs" in answer.suggestions[0]
    assert applied(answer).tensor_parallel_size > 1


def test_fp8_is_the_nearest_change_where_it_is_enough() -> None:
    base = {"geometry": geometry("Qwen/Qwen3-8B"), "accelerator": accelerator("L4-24GB"), "efforts": EFFORTS}
    answer = unfit(**base, kv_cache_dtype=KVCacheDType.BF16, memory_utilization_permille=780)
    assert answer.suggestions[0].startswith("set kvCacheDType to FP8")
    assert applied(answer).kv_cache_dtype is KVCacheDType.FP8


def test_fp8_is_not_suggested_below_compute_capability_8_9() -> None:
    base = {"geometry": geometry("Qwen/Qwen3-8B"), "accelerator": custom_gpu(22.03, capability=(8, 6))}
    answer = unfit(**base, kv_cache_dtype=KVCacheDType.BF16, memory_utilization_permille=780)
    assert not [text for text in answer.suggestions if "FP8" in text]
    applied(answer)


def test_a_pool_too_small_names_the_pool_that_is_enough() -> None:
    answer = unfit(**(CPU_TIER | {"kv_cache_memory_bytes": 512 << 10}))
    assert "the stated KV pool cannot hold one request of 768 tokens" in answer.what
    assert answer.available == 512 << 10
    enough = [change for change in answer.changes if "kvCacheMemory" in change.text]
    assert enough[0].text == "set kvCacheMemory to 1Mi or more"
    assert isinstance(plan(enough[0].inputs), SizingPlan)
    assert applied(answer).max_num_seqs >= 1


def test_utilization_that_leaves_nothing() -> None:
    answer = unfit(memory_utilization_permille=10)
    assert answer.available < GIB
    assert applied(answer).max_num_seqs >= 1


def test_utilization_beyond_what_is_free() -> None:
    answer = unfit(memory_utilization_permille=1000)
    assert "more than is free on an idle GPU" in answer.what
    assert applied(answer).num_blocks > 1


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"memory_utilization_permille": 400}, r"set memoryUtilizationPercent to (4\d)"),
        ({"memory_utilization_permille": 1000}, r"set memoryUtilizationPercent to (92)"),
        ({"kv_cache_memory_bytes": 400 * GIB}, r"set kvCacheMemory to (4[5-7]\d{3})Mi or less"),
        ({"kv_cache_memory_bytes": GIB // 8}, r"set kvCacheMemory to (\d+)Mi or more"),
        ({"max_num_batched_tokens": 1_048_576}, r"set maxNumBatchedTokens to (8,192)"),
        ({"accelerator": custom_gpu(40), "max_num_batched_tokens": 131_072}, r"set maxNumBatchedTokens to (2,048)"),
    ],
)
def test_the_nearest_value_is_named(changes: dict[str, Any], text: str) -> None:
    answer = unfit(**changes)
    assert [found for suggestion in answer.suggestions if (found := re.fullmatch(text, suggestion))], answer.suggestions
    applied(answer)


def test_a_batch_no_smaller_than_needed_where_the_default_is_too_large() -> None:
    tight = {"accelerator": custom_gpu(70.5), "memory_utilization_permille": 500}
    answer = unfit(**tight)
    (change,) = [found for found in answer.changes if "maxNumBatchedTokens" in found.text]
    tokens = change.inputs.max_num_batched_tokens
    assert tokens is not None
    assert 2048 <= tokens < 8192
    unfit(**tight, max_num_batched_tokens=tokens + 1)


@pytest.mark.parametrize("gib", [1, 2, 4])
def test_tiny_gpu_reports_the_memory_needed(gib: int) -> None:
    answer = unfit(accelerator=custom_gpu(gib))
    assert answer.needed > 32 * GIB
    assert answer.available < gib * GIB
    assert not answer.changes
    (needed,) = re.findall(r"([\d.]+) GiB per GPU are needed with", answer.suggestions[0])
    assert float(needed) == pytest.approx(answer.needed / GIB, abs=0.01)


def test_an_explicit_number_of_sequences_that_takes_the_pool() -> None:
    answer = unfit(max_num_seqs=10**6)
    assert "maxNumSeqs" in answer.suggestions[0]
    assert applied(answer).max_num_seqs < 10**6


def test_an_explicit_length_that_takes_the_pool() -> None:
    small = {"accelerator": custom_gpu(40), "efforts": (effort(prompt=256, thinking=256, answer=256),)}
    answer = unfit(**small, max_model_len=40_960)
    assert answer.suggestions[0] == "leave maxModelLen out; the budgets need less"
    assert applied(answer).max_model_len == 768


def test_nothing_on_this_product_fits() -> None:
    answer = unfit(geometry=geometry("moonshotai/Kimi-K2-Instruct"), accelerator=accelerator("L4-24GB"))
    assert answer.changes == ()
    assert "no single change fits on L4-24GB" in answer.suggestions[0]


# --- what no plan can be made from -----------------------------------------------------------------------------------


EFFORT_ATTRIBUTES = frozenset(field.name for field in fields(Effort))


@pytest.mark.parametrize(
    ("changes", "attribute"),
    [
        ({"efforts": ()}, "efforts"),
        ({"efforts": (effort(prompt=0),)}, "prompt_tokens"),
        ({"efforts": (effort(thinking=-1),)}, "thinking_tokens"),
        ({"efforts": (effort(thinking=0, answer=0),)}, "answer_tokens"),
        ({"efforts": (effort(share=0),)}, "share"),
        ({"efforts": (effort(share=float("nan")),)}, "share"),
        ({"tensor_parallel_size": 0}, "tensor_parallel_size"),
        ({"tensor_parallel_size": 3}, "tensor_parallel_size"),
        ({"memory_utilization_permille": 0}, "memory_utilization_permille"),
        ({"memory_utilization_permille": 1001}, "memory_utilization_permille"),
        ({"kv_cache_memory_bytes": 0}, "kv_cache_memory_bytes"),
        ({"kv_cache_memory_bytes": -1}, "kv_cache_memory_bytes"),
        ({"weight_bytes": 0}, "weight_bytes"),
        ({"preemption_risk_permille": 1001}, "preemption_risk_permille"),
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"max_model_len": -5}, "max_model_len"),
        ({"max_num_batched_tokens": 0}, "max_num_batched_tokens"),
        ({"block_size": 0}, "block_size"),
        ({"block_size": 17}, "block_size"),
        ({"block_size": 10**12}, "block_size"),
        ({"time_per_output_token_ms": 0}, "time_per_output_token_ms"),
        ({"shared_prefix_tokens": -1}, "shared_prefix_tokens"),
        ({"draft_weight_bytes": -1}, "draft_weight_bytes"),
        ({"accelerator": replace(CPU, product="X", memory_bytes=-1)}, "memory_bytes"),
    ],
)
def test_impossible_inputs_name_their_attribute(changes: dict[str, Any], attribute: str) -> None:
    with pytest.raises(SizingError) as caught:
        plan(sizing_input(**changes))
    assert caught.value.attribute == attribute
    assert caught.value.effort == ("high" if attribute in EFFORT_ATTRIBUTES else None)
    assert not isinstance(caught.value, GeometryError)


def test_unordered_quantiles_are_refused() -> None:
    from reasoningpool.sizing import TokenQuantiles

    bad = effort(output_distribution=TokenQuantiles(p50=100, p90=50, p99=500))
    with pytest.raises(SizingError, match="must be positive and rise"):
        plan(sizing_input(efforts=(bad,)))
