"""The engine's own limits: vLLM's defaults by class of device, and caps no derivation goes beyond."""

from __future__ import annotations

from typing import Final

from reasoningpool.sizing import constants as c
from reasoningpool.sizing.types import AcceleratorFacts, SizingInput

_AMPERE: Final = (8, 0)


def _is_large(accelerator: AcceleratorFacts) -> bool:
    """At least 70 GiB and not an A100, the class vLLM gives its larger defaults."""
    memory = accelerator.memory_bytes
    return memory is not None and memory >= c.LARGE_CLASS_BYTES and accelerator.compute_capability != _AMPERE


def default_batched_tokens(inputs: SizingInput) -> int:
    """`max_num_batched_tokens`: 16,384 from 160 GiB, 8,192 from 70 GiB (not A100), else 2,048."""
    memory = inputs.accelerator.memory_bytes
    if memory is None:
        return c.BATCHED_TOKENS_OTHER * inputs.tensor_parallel_size
    if memory >= c.LARGEST_CLASS_BYTES:
        return c.BATCHED_TOKENS_LARGEST
    return c.BATCHED_TOKENS_LARGE if _is_large(inputs.accelerator) else c.BATCHED_TOKENS_OTHER


def sequence_cap(inputs: SizingInput) -> int:
    """The most sequences derived: 1,024 on the larger class, 256 elsewhere; hybrids at most 512."""
    cap = c.MAX_NUM_SEQS_LARGE if _is_large(inputs.accelerator) else c.MAX_NUM_SEQS_OTHER
    return min(cap, c.MAX_NUM_SEQS_HYBRID) if inputs.geometry.is_hybrid else cap
