"""KV blocks: how vLLM cuts the pool, and what a request takes of it.

Layers of one kind form groups of equal size that share one pool; a block holds `block_size` tokens for all
layers of one group. Models with one kind of layer have one group. The null block is never handed out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reasoningpool.sizing.constants import BATCHES_IN_FLIGHT
from reasoningpool.sizing.errors import SizingError
from reasoningpool.sizing.geometry import Geometry
from reasoningpool.sizing.integers import ceil_div
from reasoningpool.sizing.types import AcceleratorFacts, KVCacheDType

DTYPE_BYTES: Final[dict[KVCacheDType, int]] = {
    KVCacheDType.AUTO: 2,  # the model's 16-bit type
    KVCacheDType.BF16: 2,
    KVCacheDType.FP16: 2,
    KVCacheDType.FP8: 1,
    KVCacheDType.FP8_E5M2: 1,
}
_GPU_KERNEL_BLOCK: Final = 16
_CPU_KERNEL_BLOCK: Final = 32
_CPU_BLOCK: Final = 128
_LATENT_BLOCK: Final = 64  # FlashMLA and FlashInfer-MLA
_HOPPER: Final = 9
_PAD_RATIO: Final = 1.25  # layer kinds this close in number are padded to one group size
_MAX_BLOCK: Final = 65_536


__all__ = ["DTYPE_BYTES", "KVLayout", "ceil_div", "kv_layout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KVLayout:
    """The pool's units on one GPU."""

    block_size: int  # tokens of a block in a full-attention group
    bytes_per_block: int  # all layers of one group
    bytes_per_token: int  # what a further token costs: full-attention layers
    full_groups: int
    sliding_groups: int
    sliding_window: int
    state_groups: int
    state_blocks: int  # per group and request
    batches_in_flight: int

    @property
    def sliding_blocks(self) -> int:
        """Blocks of one sliding group that a long request holds while decoding: `ceil(window / block) + 1`."""
        return ceil_div(self.sliding_window, self.block_size) + 1 if self.sliding_groups else 0

    @property
    def constant_blocks(self) -> int:
        """Blocks of a long request that do not grow with it."""
        return self.sliding_groups * self.sliding_blocks + self.state_groups * self.state_blocks

    def request_blocks(self, tokens: int) -> int:
        """Blocks a decoding request of `tokens` holds. gpt-oss-120b at 32,768 tokens: 2,048 + 9."""
        paged = ceil_div(tokens, self.block_size)
        sliding = self.sliding_groups * min(paged, self.sliding_blocks)
        return self.full_groups * paged + sliding + self.state_groups * self.state_blocks

    def planner_blocks(self, tokens: int, batched_tokens: int) -> int:
        """Blocks vLLM's planner reserves for one request of `tokens`, prefill in flight included.

        A sliding group reserves `ceil(min(window - 1 + in_flight, tokens) / block) + 1`.
        gpt-oss-120b, 32,768 tokens, 8,192 batched: 2,048 + 1,033.
        """
        paged = ceil_div(tokens, self.block_size)
        in_flight = self.batches_in_flight * batched_tokens
        sliding = ceil_div(min(self.sliding_window - 1 + in_flight, tokens), self.block_size) + 1
        return self.full_groups * paged + self.sliding_groups * sliding + self.state_groups * self.state_blocks

    def transient_blocks(self, tokens_in_prefill: int, batched_tokens: int) -> int:
        """Blocks that prefills in flight hold beyond the steady ones, over all requests together."""
        if not self.sliding_groups:
            return 0
        in_flight = min(self.batches_in_flight * batched_tokens, tokens_in_prefill)
        return self.sliding_groups * ceil_div(in_flight, self.block_size)


def kv_layout(
    geometry: Geometry,
    accelerator: AcceleratorFacts,
    *,
    tensor_parallel: int,
    dtype: KVCacheDType,
    block_size: int | None,
    draft_layers: int = 0,
    speculative_tokens: int = 0,
    prefix_caching: bool = True,
) -> KVLayout:
    """The groups and blocks vLLM forms for this model on this accelerator."""
    is_cpu = accelerator.memory_bytes is None
    per_token = geometry.kv_bytes_per_token_and_layer(DTYPE_BYTES[dtype], tensor_parallel=tensor_parallel)
    base = _base_block(geometry, accelerator, block_size)
    full = geometry.full_layers + draft_layers
    block = base
    if geometry.state is not None:
        kernel = _CPU_KERNEL_BLOCK if is_cpu else _GPU_KERNEL_BLOCK
        state_bytes = geometry.state.bytes_per_layer(tensor_parallel)
        block = max(base, kernel * ceil_div(state_bytes, kernel * per_token))
    size = _group_size([n for n in (full, geometry.sliding_layers, geometry.state_layers) if n])
    return KVLayout(
        block_size=block,
        bytes_per_block=size * per_token * block,
        bytes_per_token=full * per_token,
        full_groups=ceil_div(full, size),
        sliding_groups=ceil_div(geometry.sliding_layers, size),
        sliding_window=geometry.sliding_window or 0,
        state_groups=ceil_div(geometry.state_layers, size),
        state_blocks=((2 if prefix_caching else 1) + speculative_tokens) if geometry.state_layers else 0,
        batches_in_flight=1 if is_cpu else BATCHES_IN_FLIGHT,
    )


def _group_size(counts: list[int]) -> int:
    """Layers per group: the smallest kind's number, or the largest's when they are within a quarter."""
    smallest, largest = min(counts), max(counts)
    return largest if largest < smallest * _PAD_RATIO else smallest


def _base_block(geometry: Geometry, accelerator: AcceleratorFacts, stated: int | None) -> int:
    is_cpu = accelerator.memory_bytes is None
    if stated is not None:
        step = _CPU_KERNEL_BLOCK if is_cpu and not geometry.is_latent else _GPU_KERNEL_BLOCK
        if not step <= stated <= _MAX_BLOCK or stated % step:
            message = f"blockSize {stated} is not a multiple of {step} from {step} to {_MAX_BLOCK}"
            raise SizingError(message, field="blockSize")
        return stated
    if is_cpu:
        return _GPU_KERNEL_BLOCK if geometry.is_latent else _CPU_BLOCK
    hopper = accelerator.compute_capability is not None and accelerator.compute_capability[0] >= _HOPPER
    return _LATENT_BLOCK if geometry.is_latent and hopper else _GPU_KERNEL_BLOCK
