"""Tokens per block before hybrids enlarge it: what the attention backend that vLLM picks asks for.

Rules of `vllm/platforms/cuda.py` (`_get_backend_priorities`), `Platform.update_block_size_for_backend` and
`get_supported_kernel_block_sizes` of the backends, vLLM 0.32.
"""

from __future__ import annotations

from typing import Final

from reasoningpool.model.errors import SizingError
from reasoningpool.model.geometry import Geometry
from reasoningpool.sizing.kv.kv_elements import KVElements, is_16_bit
from reasoningpool.sizing.types import AcceleratorFacts, KVCacheDType

_DEFAULT: Final = 16
_CPU_DEFAULT: Final = 128
_CPU_KERNEL: Final = 32
_FLASH_MLA: Final = 64
_FLASHINFER_MLA: Final = 32
_MAX_BLOCK: Final = 65_536
_HOPPER: Final = 9
_BLACKWELL: Final = 10
_LARGE_HEAD: Final = 512


def kernel_block(geometry: Geometry, accelerator: AcceleratorFacts) -> int:
    """The granularity a block must keep: 16 tokens, 32 on CPU."""
    return _CPU_KERNEL if accelerator.memory_bytes is None and not geometry.is_latent else _DEFAULT


def base_block(geometry: Geometry, accelerator: AcceleratorFacts, dtype: KVElements, stated: int | None = None) -> int:
    """Tokens per block: the stated number, else the backend's.

    - CPU: 128 (latent attention: 16).
    - Latent attention: Hopper 16 in 16 bit (FlashAttention-MLA) and 64 in fp8 (FlashMLA), data-centre Blackwell 32
      (FlashInfer-MLA), others 16 (Triton); with a sparse index 64 everywhere.
    - Heads of 512 in fp8 on Hopper: 64 (FlashAttention 4).
    - All else: 16.
    """
    if stated is not None:
        step = kernel_block(geometry, accelerator)
        if not step <= stated <= _MAX_BLOCK or stated % step:
            message = f"blockSize {stated} is not a multiple of {step} from {step} to {_MAX_BLOCK}"
            raise SizingError(message, attribute="block_size")
        return stated
    if accelerator.memory_bytes is None:
        return _DEFAULT if geometry.is_latent else _CPU_DEFAULT
    major = accelerator.compute_capability[0] if accelerator.compute_capability else 0
    if geometry.is_latent:
        if geometry.indexer_bytes:
            return _FLASH_MLA
        if major == _BLACKWELL:
            return _FLASHINFER_MLA
        return _FLASH_MLA if major == _HOPPER and not is_16_bit(dtype) else _DEFAULT
    fp8 = dtype is KVCacheDType.FP8
    return _FLASH_MLA if major == _HOPPER and fp8 and geometry.head_dim == _LARGE_HEAD else _DEFAULT
