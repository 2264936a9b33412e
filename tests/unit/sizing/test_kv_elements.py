"""Bytes per token and head of every KV cache type, and default blocks by backend and GPU."""

from __future__ import annotations

import pytest

from reasoningpool.model import Geometry
from reasoningpool.model.layers import AttentionShape
from reasoningpool.sizing import AcceleratorFacts, KVCacheDType, SizingError
from reasoningpool.sizing.kv.block_size import base_block
from reasoningpool.sizing.kv.grouping import Bucket, CacheKind, form_groups, group_size, pipeline_stages
from reasoningpool.sizing.kv.kv_elements import KVElements, PackedKVCacheDType, head_bytes, latent_bytes
from support.planner_models import DEEPSEEK_R1, DEEPSEEK_V32, GEMMA_4_26B, QWEN3_8B
from unit.sizing.builders import CPU, custom_gpu

HEAD_128 = AttentionShape(kv_heads=1, head_dim=128, value_dim=128)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (KVCacheDType.AUTO, 512),
        (KVCacheDType.BF16, 512),
        (KVCacheDType.FP16, 512),
        (KVCacheDType.FP8, 256),
        (KVCacheDType.FP8_E5M2, 256),
        (PackedKVCacheDType.FP8_PER_TOKEN_HEAD, 264),
        (PackedKVCacheDType.INT8_PER_TOKEN_HEAD, 264),
        (PackedKVCacheDType.INT4_PER_TOKEN_HEAD, 136),
        (PackedKVCacheDType.NVFP4, 144),
        (PackedKVCacheDType.TURBOQUANT_K8V4, 196),
        (PackedKVCacheDType.TURBOQUANT_4BIT, 134),
        (PackedKVCacheDType.TURBOQUANT_K3V4, 118),
        (PackedKVCacheDType.TURBOQUANT_3BIT, 102),
    ],
)
def test_bytes_of_a_token_in_one_head_of_128(dtype: KVElements, expected: int) -> None:
    assert head_bytes(dtype, HEAD_128) == expected


def test_heads_whose_values_are_narrower_than_their_keys() -> None:
    assert head_bytes(KVCacheDType.BF16, AttentionShape(kv_heads=8, head_dim=192, value_dim=128)) == 640


@pytest.mark.parametrize(
    ("dtype", "sparse", "capability", "expected"),
    [
        (KVCacheDType.BF16, False, (9, 0), 1152),
        (KVCacheDType.FP8, False, (9, 0), 576),
        (KVCacheDType.BF16, True, (9, 0), 1152),
        (KVCacheDType.FP8, True, (9, 0), 656),
        (KVCacheDType.FP8, True, None, 656),
        (KVCacheDType.FP8, True, (10, 0), 576),
    ],
)
def test_latent_bytes(dtype: KVElements, sparse: bool, capability: tuple[int, int] | None, expected: int) -> None:  # noqa: FBT001
    assert latent_bytes(dtype, 576, sparse=sparse, capability=capability) == expected


@pytest.mark.parametrize(
    ("config", "capability", "dtype", "expected"),
    [
        (QWEN3_8B, (8, 0), KVCacheDType.BF16, 16),
        (QWEN3_8B, (9, 0), KVCacheDType.FP8, 16),
        (QWEN3_8B, (10, 0), KVCacheDType.FP8, 16),
        (GEMMA_4_26B, (9, 0), KVCacheDType.FP8, 64),
        (GEMMA_4_26B, (9, 0), KVCacheDType.BF16, 16),
        (DEEPSEEK_R1, (8, 0), KVCacheDType.FP8, 16),
        (DEEPSEEK_R1, (9, 0), KVCacheDType.BF16, 16),
        (DEEPSEEK_R1, (9, 0), KVCacheDType.FP8, 64),
        (DEEPSEEK_R1, (10, 0), KVCacheDType.BF16, 32),
        (DEEPSEEK_R1, (12, 0), KVCacheDType.FP8, 16),
        (DEEPSEEK_V32, (9, 0), KVCacheDType.BF16, 64),
        (DEEPSEEK_V32, (10, 0), KVCacheDType.FP8, 64),
    ],
)
def test_default_block_by_gpu(
    config: dict[str, object], capability: tuple[int, int], dtype: KVElements, expected: int
) -> None:
    gpu: AcceleratorFacts = custom_gpu(80, capability=capability)
    assert base_block(Geometry.from_config(config), gpu, dtype) == expected


def test_default_block_on_cpu() -> None:
    assert base_block(Geometry.from_config(QWEN3_8B), CPU, KVCacheDType.BF16) == 128
    assert base_block(Geometry.from_config(DEEPSEEK_R1), CPU, KVCacheDType.BF16) == 16


@pytest.mark.parametrize(
    ("counts", "expected"),
    [((10, 20), 10), ((12, 13), 13), ((10, 14), 14), ((10, 15), 10), ((4, 27), 4), ((7,), 7)],
)
def test_group_size_follows_the_smallest_kind_or_pads_to_the_largest(counts: tuple[int, ...], expected: int) -> None:
    assert group_size(counts) == expected


def test_pages_of_two_shapes_are_brought_to_one_size() -> None:
    sliding = Bucket(CacheKind.SLIDING, tuple(range(4)), 16, 4096)
    small = Bucket(CacheKind.FULL, (4, 5), 16, 2048)
    groups = form_groups([sliding, small])
    assert {group.page_bytes[0] for group in groups} == {4096}
    assert next(group.block_size for group in groups if group.kind is CacheKind.FULL) == 32
    odd = Bucket(CacheKind.FULL, (4, 5), 16, 3000)
    assert next(group.block_size for group in form_groups([sliding, odd]) if group.kind is CacheKind.FULL) == 16
    with pytest.raises(SizingError, match="one block size"):
        form_groups([sliding, Bucket(CacheKind.FULL, (4, 5), 16, 3000, paddable=False)])


@pytest.mark.parametrize(
    ("layers", "stages", "sizes"),
    [(61, 4, [15, 15, 16, 15]), (62, 4, [15, 16, 16, 15]), (48, 2, [24, 24]), (5, 3, [2, 2, 1])],
)
def test_layers_of_pipeline_stages(layers: int, stages: int, sizes: list[int]) -> None:
    assert [len(stage) for stage in pipeline_stages(layers, stages)] == sizes
