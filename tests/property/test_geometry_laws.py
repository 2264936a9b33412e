"""Laws of geometry, weights and KV blocks, and answers instead of tracebacks whatever a configuration holds."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoningpool.catalog import models
from reasoningpool.model import Geometry
from reasoningpool.model.matrices import Kind, Split
from reasoningpool.model.sharding import check_shards
from reasoningpool.model.weights import WeightFormat
from reasoningpool.sizing import AcceleratorFacts, KVCacheDType, SizingError
from reasoningpool.sizing.kv.blocks import KVLayout, kv_layout
from reasoningpool.sizing.kv.grouping import pipeline_stages
from reasoningpool.sizing.kv.kv_elements import KVElements, PackedKVCacheDType
from support import planner_models as m

LAW = settings(max_examples=200, deadline=None, derandomize=True, database=None)
HOPPER = AcceleratorFacts(
    product="H100", memory_bytes=85 * 10**9, compute_capability=(9, 0), memory_bandwidth_bytes_per_s=None
)
CPU = replace(HOPPER, product="CPU", memory_bytes=None, compute_capability=None)
CONFIGS: dict[str, dict[str, Any]] = {
    name: value
    for name, value in vars(m).items()
    if name.isupper() and isinstance(value, dict) and "architectures" in value
}
CATALOG = {name: (entry.config, entry.checkpoint_quantization) for name, entry in models().items()}
GEOMETRIES = {name: Geometry.from_config(config) for name, config in CONFIGS.items()} | {
    name: Geometry.from_config(*entry) for name, entry in CATALOG.items()
}
DTYPES: tuple[KVElements, ...] = (*KVCacheDType, *PackedKVCacheDType)
RANKS = (1, 2, 4, 8, 16)


def layout(geometry: Geometry, ranks: int, dtype: KVElements = KVCacheDType.BF16, **more: Any) -> KVLayout | None:
    """The layout, `None` where the engine refuses the combination."""
    try:
        return kv_layout(geometry, HOPPER, tensor_parallel=ranks, dtype=dtype, block_size=None, **more)
    except SizingError:
        return None


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("fmt", WeightFormat)
def test_tensor_parallelism_splits_what_is_split_and_repeats_the_rest(name: str, fmt: WeightFormat) -> None:
    weights = GEOMETRIES[name].weights
    per_gpu = [weights.bytes_per_gpu(fmt, ranks) for ranks in RANKS]
    assert per_gpu == sorted(per_gpu, reverse=True)
    for ranks, held in zip(RANKS, per_gpu, strict=True):
        assert held * ranks * 1.05 >= per_gpu[0]  # but for the allocator's rounding nothing is lost
        assert weights.parameters_per_gpu(ranks) * ranks >= weights.total
    whole = sum(x.parameters for x in weights.matrices if x.split is Split.NONE)
    assert weights.parameters_per_gpu(16) >= whole
    for matrix in weights.matrices:
        rows, columns = matrix.shard(4)
        if matrix.split is Split.NONE:
            assert (rows, columns) == (matrix.rows, matrix.columns)
        else:
            assert rows * columns < matrix.rows * matrix.columns or matrix.units == 1


@pytest.mark.parametrize("name", GEOMETRIES)
def test_a_quantized_checkpoint_is_smaller_and_its_parameters_are_the_same(name: str) -> None:
    weights = GEOMETRIES[name].weights
    sizes = {fmt: weights.bytes_total(fmt) for fmt in WeightFormat}
    assert sizes[WeightFormat.BF16] == 2 * weights.total
    assert max(sizes.values()) == sizes[WeightFormat.BF16]
    assert sizes[WeightFormat.INT4] < sizes[WeightFormat.FP8_BLOCK] < sizes[WeightFormat.BF16]
    kinds = {kind: sum(x.parameters for x in weights.matrices if x.kind is kind) for kind in Kind}
    assert sum(kinds.values()) == weights.total
    assert kinds[Kind.LINEAR] == weights.linear + weights.replicated_linear


@LAW
@given(st.sampled_from(sorted(GEOMETRIES)), st.sampled_from(RANKS), st.sampled_from(DTYPES))
def test_more_ranks_and_narrower_elements_never_take_more_kv(name: str, ranks: int, dtype: KVElements) -> None:
    geometry = GEOMETRIES[name]
    wide = layout(geometry, ranks)
    narrow = layout(geometry, ranks, dtype)
    more = layout(geometry, 2 * ranks, dtype)
    if wide is not None and narrow is not None and not geometry.is_hybrid:
        assert 0 < narrow.bytes_per_token <= wide.bytes_per_token
    if narrow is not None and more is not None:
        assert more.bytes_per_token <= narrow.bytes_per_token
        latent = geometry.is_latent and not geometry.is_hybrid
        assert more.bytes_per_token >= narrow.bytes_per_token * (1.0 if latent else 0.5)


@LAW
@given(
    st.sampled_from(sorted(GEOMETRIES)),
    st.sampled_from(RANKS),
    st.integers(1, 300_000),
    st.integers(1, 20_000),
    st.integers(1, 4),
)
def test_blocks_grow_with_tokens_and_the_planner_reserves_what_a_request_holds(
    name: str, ranks: int, tokens: int, more: int, stages: int
) -> None:
    found = layout(GEOMETRIES[name], ranks, pipeline_parallel=stages)
    if found is None:
        return
    assert 1 <= found.request_blocks(tokens) <= found.request_blocks(tokens + more)
    assert found.request_blocks(tokens) <= found.planner_blocks(tokens, 8192)
    whole = layout(GEOMETRIES[name], ranks)
    assert whole is not None
    assert found.bytes_per_block <= whole.bytes_per_block <= found.bytes_per_block * stages * 2
    assert found.request_blocks(tokens) == whole.request_blocks(tokens)


@LAW
@given(st.integers(1, 200), st.integers(1, 16))
def test_pipeline_stages_cover_the_layers_once_and_evenly(layers: int, stages: int) -> None:
    if stages > layers:
        with pytest.raises(SizingError, match="pipeline stages"):
            pipeline_stages(layers, stages)
        return
    found = pipeline_stages(layers, stages)
    assert [layer for stage in found for layer in stage] == list(range(layers))
    assert max(map(len, found)) - min(map(len, found)) <= 1


def test_decode_context_parallelism_shares_a_requests_tokens() -> None:
    geometry = GEOMETRIES["DEEPSEEK_R1"]
    one, eight = layout(geometry, 8), layout(geometry, 8, context_parallel=8)
    assert one is not None
    assert eight is not None
    assert one.request_blocks(131_072) == 8 * eight.request_blocks(131_072)
    assert one.bytes_per_block == eight.bytes_per_block


@pytest.mark.parametrize(
    ("name", "ranks", "shared", "words"),
    [
        ("QWEN3_32B", 8, 2, "repeat KV heads"),
        ("QWEN3_32B", 16, 3, "does not divide"),
        ("QWEN3_32B", 16, 4, "at most 2"),
        ("GPT_OSS_120B", 16, 2, "sliding-window"),
        ("DEEPSEEK_R1", 8, 0, "does not divide"),
    ],
)
def test_context_parallelism_that_the_engine_refuses(name: str, ranks: int, shared: int, words: str) -> None:
    with pytest.raises(SizingError, match=words):
        kv_layout(
            GEOMETRIES[name], HOPPER, tensor_parallel=ranks, dtype=KVCacheDType.BF16, block_size=None,
            context_parallel=shared,
        )  # fmt: skip


def test_states_need_the_hybrid_manager_and_heads_that_divide() -> None:
    geometry = GEOMETRIES["QWEN3_NEXT_80B"]
    for more, words in (({"hybrid_manager": False}, "hybrid KV cache manager"), ({}, "perReplica is 3")):
        with pytest.raises(SizingError, match=words):
            kv_layout(geometry, HOPPER, tensor_parallel=3, dtype=KVCacheDType.BF16, block_size=None, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", PackedKVCacheDType)
def test_latent_attention_takes_no_packed_types(dtype: PackedKVCacheDType) -> None:
    with pytest.raises(SizingError, match="no kernels"):
        kv_layout(GEOMETRIES["DEEPSEEK_R1"], HOPPER, tensor_parallel=8, dtype=dtype, block_size=None)


@pytest.mark.parametrize(
    ("model", "ranks", "words"),
    [
        ("Qwen/Qwen3-235B-A22B-FP8", 8, "cut to 192 is not whole quantization blocks of 128; .*: 1, 2, 4"),
        ("Qwen/Qwen3-30B-A3B-FP8", 4, "cut to 192"),
        ("MiniMaxAI/MiniMax-M2", 8, "enable-expert-parallel"),
    ],
)
def test_scale_blocks_that_a_shard_would_cut(model: str, ranks: int, words: str) -> None:
    with pytest.raises(SizingError, match=words) as caught:
        check_shards(GEOMETRIES[model], ranks)
    assert caught.value.attribute == "tensor_parallel_size"
    check_shards(GEOMETRIES[model], ranks, expert_parallel=True)
    check_shards(GEOMETRIES[model], ranks // 2 if ranks == 8 else 2)


def test_groups_of_a_4_bit_checkpoint_stay_whole() -> None:
    awq = {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    config = m.attention(3584, 18_944, 28, 28, 4, 128, 152_064) | {"model_type": "qwen2"} | awq
    check_shards(Geometry.from_config(config), 4)
    with pytest.raises(SizingError, match="down_proj of width 18,944 cut to 2,707 is not whole"):
        check_shards(Geometry.from_config(config), 7)


# --- absurd configurations -------------------------------------------------------------------------------------------

ABSURD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**12), 10**12),
    st.integers(-3, 3),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=8),
    st.lists(st.one_of(st.integers(-2, 5), st.text(max_size=4)), max_size=4),
    st.dictionaries(st.text(max_size=4), st.integers(-2, 5), max_size=2),
)
EXTRA_KEYS = (
    "kv_lora_rank", "index_topk", "sliding_window", "layer_types", "layers_block_type", "hybrid_override_pattern",
    "mamba_d_state", "ssm_state_size", "attn_layer_period", "attn_layer_indices", "linear_num_value_heads",
    "num_kv_shared_layers", "global_head_dim", "v_head_dim", "quantization_config", "num_experts", "rope_scaling",
    "moe_latent_size", "conv_L_cache", "num_nextn_predict_layers", "mlp_only_layers", "first_k_dense_replace",
)  # fmt: skip


@settings(max_examples=1500, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_any_mutation_is_sized_or_answered_with_its_key(data: st.DataObject) -> None:
    config = copy.deepcopy(CONFIGS[data.draw(st.sampled_from(sorted(CONFIGS)))])
    for _ in range(data.draw(st.integers(1, 3))):
        key = data.draw(st.sampled_from(sorted({*config, *EXTRA_KEYS})))
        if data.draw(st.booleans()):
            config[key] = data.draw(ABSURD)
        else:
            config.pop(key, None)
    ranks = data.draw(st.sampled_from(RANKS))
    try:
        geometry = Geometry.from_config(config)
        found = kv_layout(
            geometry,
            data.draw(st.sampled_from([HOPPER, CPU])),
            tensor_parallel=ranks,
            dtype=data.draw(st.sampled_from(DTYPES)),
            block_size=None,
            pipeline_parallel=data.draw(st.integers(1, 3)),
            context_parallel=data.draw(st.sampled_from([1, 1, 2])),
        )
        check_shards(geometry, ranks)
    except SizingError as error:
        assert str(error)
        return
    assert found.block_size > 0
    assert found.bytes_per_block > 0
    assert found.bytes_per_token > 0
    assert found.constant_blocks >= 0
    assert found.request_blocks(1) >= 1
    assert geometry.weights.total > 0
    assert min(matrix.rows * matrix.columns * matrix.copies for matrix in geometry.weights.matrices) >= 0
    assert geometry.weights.bytes_per_gpu(geometry.weight_format, ranks) > 0
    assert geometry.native_context_tokens > 0
