"""Bytes of one token's keys and values in one layer, for every KV cache type of vLLM.

Sources: `customize_spec` of the attention backends in `vllm/v1/attention/backends/`, `MLAAttention.get_kv_cache_spec`,
`quantization/turboquant/config.py` and `nvfp4_kv_cache_full_dim`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeAlias

from reasoningpool.model.errors import SizingError
from reasoningpool.model.integers import ceil_div
from reasoningpool.model.layers import AttentionShape
from reasoningpool.sizing.types import KVCacheDType


class PackedKVCacheDType(StrEnum):
    """vLLM's KV cache types beyond plain elements, in its spelling. The resource does not offer them yet."""

    FP8_PER_TOKEN_HEAD = "fp8_per_token_head"  # noqa: S105 (no password)
    INT8_PER_TOKEN_HEAD = "int8_per_token_head"  # noqa: S105
    INT4_PER_TOKEN_HEAD = "int4_per_token_head"  # noqa: S105
    NVFP4 = "nvfp4"
    TURBOQUANT_K8V4 = "turboquant_k8v4"
    TURBOQUANT_4BIT = "turboquant_4bit_nc"
    TURBOQUANT_K3V4 = "turboquant_k3v4_nc"
    TURBOQUANT_3BIT = "turboquant_3bit_nc"


KVElements: TypeAlias = KVCacheDType | PackedKVCacheDType

_ELEMENT_BYTES: Final[dict[KVElements, int]] = {
    KVCacheDType.AUTO: 2,  # the model's 16-bit type
    KVCacheDType.BF16: 2,
    KVCacheDType.FP16: 2,
    KVCacheDType.FP8: 1,
    KVCacheDType.FP8_E5M2: 1,
}
# Bits of keys and values.
_TURBOQUANT: Final[dict[KVElements, tuple[int, int]]] = {
    PackedKVCacheDType.TURBOQUANT_K8V4: (8, 4),
    PackedKVCacheDType.TURBOQUANT_4BIT: (4, 4),
    PackedKVCacheDType.TURBOQUANT_K3V4: (3, 4),
    PackedKVCacheDType.TURBOQUANT_3BIT: (3, 3),
}
_PER_TOKEN_HEAD_SCALES: Final = 8  # one 32-bit scale each for key and value
_SPARSE_FP8_BYTES: Final = 656  # fp8_ds_mla: 512 fp8 values, 4 scales of 32 bit, 64 rotary values of 16 bit
_BLACKWELL: Final = 10


def is_16_bit(dtype: KVElements) -> bool:
    """Whether the cache holds the model's own type."""
    return _ELEMENT_BYTES.get(dtype) == 2


def is_turboquant(dtype: KVElements) -> bool:
    """Whether keys and values are packed by TurboQuant (which leaves outer layers in 16 bit)."""
    return dtype in _TURBOQUANT


def head_bytes(dtype: KVElements, shape: AttentionShape) -> int:
    """Bytes of one token in one KV head, keys and values together.

    At 128 elements: 16 bit 512, fp8 256, fp8 and int8 per token and head 264, int4 per token and head 136, nvfp4 144,
    TurboQuant k8v4 / 4bit / k3v4 / 3bit 196 / 134 / 118 / 102.
    """
    elements = shape.head_dim + shape.value_dim
    if dtype in _ELEMENT_BYTES:
        return elements * _ELEMENT_BYTES[dtype]
    if dtype in _TURBOQUANT:
        key_bits, value_bits = _TURBOQUANT[dtype]
        # Rotated keys carry a 16-bit norm, values a 16-bit scale and zero point.
        key = shape.head_dim if key_bits == 8 else ceil_div(shape.head_dim * key_bits, 8) + 2
        packed = key + ceil_div(shape.head_dim * value_bits, 8) + 4
        return packed + packed % 2
    if dtype is PackedKVCacheDType.NVFP4:  # two values a byte, an 8-bit scale per 16
        return sum(dim // 2 + dim // 16 for dim in (shape.head_dim, shape.value_dim))
    if dtype is PackedKVCacheDType.INT4_PER_TOKEN_HEAD:
        return shape.head_dim // 2 + shape.value_dim // 2 + _PER_TOKEN_HEAD_SCALES
    return elements + _PER_TOKEN_HEAD_SCALES


def latent_bytes(dtype: KVElements, latent: int, *, sparse: bool, capability: tuple[int, int] | None) -> int:
    """Bytes of one token's latent vector (MLA), without the indexer's cache.

    Sparse latent attention in fp8 keeps 656 bytes, on Blackwell plain fp8. Raises `SizingError` for types that latent
    attention cannot take.
    """
    if dtype not in _ELEMENT_BYTES:
        message = f"latent attention (MLA) has no kernels for the KV cache type {dtype.value}; use BF16 or FP8"
        raise SizingError(message, attribute="kv_cache_dtype")
    if sparse and _ELEMENT_BYTES[dtype] == 1 and (capability is None or capability[0] != _BLACKWELL):
        return _SPARSE_FP8_BYTES
    return latent * _ELEMENT_BYTES[dtype]
