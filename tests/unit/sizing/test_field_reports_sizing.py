"""Public bug reports of area sizing, by id, as far as the calculation itself can get them right or wrong.

What only resolution or rendering decides (S06, S08, S16, and the flags of S09, S13, S14) is tested with those.
"""

from math import floor

import pytest

from reasoningpool.catalog import find_model
from reasoningpool.model import Geometry
from reasoningpool.sizing import KVCacheDType, Limit, SizingError, SizingPlan, plan
from reasoningpool.sizing.memory import memory_shares
from unit.sizing.builders import (
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

DENSE_LARGE = dense_config(
    hidden_size=8192,
    intermediate_size=28_672,
    num_hidden_layers=80,
    num_attention_heads=64,
    num_key_value_heads=8,
    head_dim=128,
    vocab_size=128_256,
    max_position_embeddings=1_048_576,
)


def beside_weights_and_kv(weights_gib: float) -> float:
    """GiB per GPU that are neither weights nor KV, with this much weight on each of two GPUs.

    As in the report: the engine's own limits for such a GPU, on an engine that sorts the vocabulary to sample.
    """
    inputs = sizing_input(
        geometry=Geometry.from_config(DENSE_LARGE),
        accelerator=accelerator("H100-NVL-94GB"),
        tensor_parallel_size=2,
        weight_bytes=int(2 * weights_gib * GIB),
        engine_version=(0, 16, 0),
    )
    shares = memory_shares(inputs, batched_tokens=8192, sequences=1024)
    return (shares.requested - shares.weights - shares.pool) / GIB


@pytest.mark.field_report("S01")
def test_reserve_grows_with_the_weights_per_gpu() -> None:
    small, large = beside_weights_and_kv(10), beside_weights_and_kv(60)
    assert large >= 2.3 + 0.05 * 60 - 0.01
    assert large > small >= 2.3 + 0.05 * 10 - 0.01


@pytest.mark.field_report("S01")
def test_derived_length_fits_the_kv_pool() -> None:
    found = planned(
        geometry=Geometry.from_config(DENSE_LARGE),
        accelerator=accelerator("H100-NVL-94GB"),
        tensor_parallel_size=2,
        weight_bytes=120 * GIB,
        efforts=(effort(prompt=16_000, thinking=16_000, answer=4000),),
    )
    memory = accelerator("H100-NVL-94GB").memory_bytes
    assert memory is not None
    assert found.max_model_len * found.kv_bytes_per_token <= 0.92 * memory - 60 * GIB - 5.3 * GIB


@pytest.mark.field_report("S02")
@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_latent_kv_is_not_divided_by_the_number_of_gpus(ranks: int) -> None:
    config = dense_config(
        model_type="deepseek_v3",
        num_hidden_layers=61,
        num_attention_heads=128,
        num_key_value_heads=128,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
    )
    found = planned(
        geometry=Geometry.from_config(config),
        accelerator=accelerator("H200-SXM-141GB"),
        tensor_parallel_size=ranks,
        efforts=(effort(prompt=4000, thinking=1000, answer=1000),),
    )
    assert found.kv_bytes_per_token == 61 * (512 + 64) == 35_136


@pytest.mark.field_report("S02")
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_grouped_query_kv_is_divided(ranks: int) -> None:
    found = planned(tensor_parallel_size=ranks)
    assert found.kv_bytes_per_token == 131_072 // ranks


@pytest.mark.field_report("S04")
def test_max_num_seqs_is_derived_and_sampler_memory_reserved() -> None:
    config = dense_config(
        model_type="qwen2",
        hidden_size=5120,
        intermediate_size=27_648,
        num_hidden_layers=64,
        num_attention_heads=40,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=152_064,
        max_position_embeddings=32_768,
    )
    tier = {
        "geometry": Geometry.from_config(config, "awq"),
        "accelerator": custom_gpu(23.6, capability=(8, 9)),
        "tensor_parallel_size": 2,
        "memory_utilization_permille": 780,
        "engine_version": (0, 8, 1),  # sorts the vocabulary to sample
        "kv_cache_dtype": KVCacheDType.AUTO,
        "efforts": (effort("chat", prompt=12_000, thinking=0, answer=3000),),
    }
    found = planned(**tier)
    assert found.max_model_len == 15_008
    assert found.max_num_seqs <= floor(found.usable_kv_tokens / found.mean_resident_tokens)
    assert found.max_num_seqs <= 256
    assert found.activation_bytes >= found.max_num_seqs * 152_064 * 4
    # The engine's former default of 1,024: its sampler alone takes 5.5 GiB from the pool of 24 GB cards.
    former = planned(**tier, max_num_seqs=1024)
    assert former.activation_bytes > 5.5 * GIB
    assert former.kv_pool_bytes < found.kv_pool_bytes - 5 * GIB
    assert "maxNumSeqs 1,024 exceeds the derived" in former.warnings[0].message


@pytest.mark.field_report("S05")
def test_hybrid_never_gets_the_engines_default_max_num_seqs() -> None:
    found = planned(
        geometry=geometry("Qwen/Qwen3.5-27B-FP8"), efforts=(effort("chat", prompt=3000, thinking=0, answer=1000),)
    )
    assert found.max_num_seqs <= 512
    assert found.per_request_constant_bytes > 0
    # Every sequence has its state blocks within the pool.
    states = found.per_request_constant_bytes // found.bytes_per_block
    assert found.max_num_seqs * states <= found.num_blocks - 1


@pytest.mark.field_report("S05")
def test_cap_for_hybrids_holds_where_memory_allows_more() -> None:
    found = planned(
        geometry=geometry("Qwen/Qwen3-Next-80B-A3B-Instruct-FP8"),
        accelerator=custom_gpu(2000),
        efforts=(effort("chat", prompt=3000, thinking=0, answer=1000),),
    )
    assert (found.max_num_seqs, found.limited_by) == (512, Limit.ENGINE_CAP)


@pytest.mark.field_report("S05")
def test_more_sequences_than_state_blocks_are_rejected_before_start() -> None:
    answer = unfit(
        geometry=geometry("Qwen/Qwen3.5-27B-FP8"),
        efforts=(effort("chat", prompt=3000, thinking=0, answer=1000),),
        max_num_seqs=1024,
    )
    assert "state blocks, fewer than maxNumSeqs 1,024" in answer.what
    assert "set maxNumSeqs to" in answer.suggestions[0]
    assert isinstance(plan(answer.changes[0].inputs), SizingPlan)


@pytest.mark.field_report("S05")
def test_state_slots_are_named_where_they_dominate() -> None:
    found = planned(
        geometry=geometry("Qwen/Qwen3.5-27B-FP8"), efforts=(effort("chat", prompt=500, thinking=0, answer=100),)
    )
    assert found.limited_by is Limit.STATE_SLOTS


@pytest.mark.field_report("S06")
def test_auto_below_compute_capability_8_9_takes_twice_the_bytes_of_fp8() -> None:
    old = {"accelerator": custom_gpu(80, capability=(8, 6)), "geometry": geometry("Qwen/Qwen3-8B")}
    auto = planned(**old, kv_cache_dtype=KVCacheDType.AUTO)
    fp8 = planned(**old, kv_cache_dtype=KVCacheDType.FP8)
    assert auto.kv_cache_dtype is KVCacheDType.BF16
    assert auto.kv_bytes_per_token == 2 * fp8.kv_bytes_per_token


@pytest.mark.field_report("S08")
def test_opted_in_fp8_pool_holds_exactly_twice_the_tokens() -> None:
    base = {
        "accelerator": accelerator("A100-SXM-80GB"),
        "geometry": geometry("Qwen/Qwen3-8B"),
        "kv_cache_memory_bytes": 40 * GIB,
    }
    fp8, bf16 = (planned(**base, kv_cache_dtype=dtype) for dtype in (KVCacheDType.FP8, KVCacheDType.BF16))
    assert fp8.num_blocks == 2 * bf16.num_blocks + (40 * GIB // fp8.bytes_per_block) % 2


@pytest.mark.field_report("S09")
def test_bf16_tier_beside_an_fp8_tier() -> None:
    deep = planned(kv_cache_dtype=KVCacheDType.BF16, geometry=geometry("Qwen/Qwen3-8B-FP8"))
    chat = planned(kv_cache_dtype=KVCacheDType.FP8, geometry=geometry("Qwen/Qwen3-8B-FP8"))
    assert deep.kv_bytes_per_token == 2 * chat.kv_bytes_per_token
    assert deep.max_num_seqs < chat.max_num_seqs
    assert deep.max_model_len == chat.max_model_len


@pytest.mark.field_report("S11")
def test_gpu_count_that_does_not_divide_the_heads_lists_valid_ones() -> None:
    config = dense_config(hidden_size=5120, num_attention_heads=40, num_key_value_heads=8, head_dim=128)
    with pytest.raises(SizingError, match=r"40 attention heads evenly; up to 6 these can: 1, 2, 4, 5") as caught:
        plan(sizing_input(geometry=Geometry.from_config(config), tensor_parallel_size=6))
    assert caught.value.attribute == "tensor_parallel_size"


@pytest.mark.field_report("S13")
def test_low_headroom_warns_and_changes_nothing() -> None:
    found = planned(
        accelerator=custom_gpu(15.77, capability=(7, 5), product="T4"),
        tensor_parallel_size=2,
        geometry=geometry("Qwen/Qwen3-8B"),
        kv_cache_dtype=KVCacheDType.AUTO,
        memory_utilization_permille=950,
        efforts=(effort("chat", prompt=4000, thinking=0, answer=1000),),
    )
    assert [w for w in found.warnings if "leaves 0.79 GiB outside the engine's share" in w.message]
    assert found.kv_pool_bytes > 0


@pytest.mark.field_report("S14")
def test_max_model_len_comes_from_the_budgets_not_the_model() -> None:
    entry = find_model("moonshotai/Kimi-K2-Thinking")
    assert entry is not None
    assert entry.native_context_tokens == 262_144
    tier = {
        "geometry": geometry(entry.id),
        "accelerator": accelerator("H200-SXM-141GB"),
        "tensor_parallel_size": 8,
        "kv_cache_dtype": KVCacheDType.AUTO,
    }
    found = planned(**tier, efforts=(effort(prompt=8000, thinking=8000, answer=1000),))
    assert found.max_model_len == 17_008  # 17,000 in whole blocks of 16
    assert found.max_model_len * found.kv_bytes_per_token <= found.kv_pool_bytes


@pytest.mark.field_report("S14")
def test_budgets_beyond_the_kv_pool_suggest_what_fits() -> None:
    answer = unfit(
        geometry=geometry("moonshotai/Kimi-K2-Thinking"),
        accelerator=accelerator("H100-SXM-80GB"),
        tensor_parallel_size=8,
        kv_cache_dtype=KVCacheDType.AUTO,
        efforts=(effort(prompt=130_000, thinking=120_000, answer=10_000),),
    )
    assert answer.missing > 0
    assert isinstance(plan(answer.changes[0].inputs), SizingPlan)
