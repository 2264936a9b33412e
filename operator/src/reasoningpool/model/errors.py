"""Errors of the calculation: what is wrong, with which input, and what to write instead."""

from __future__ import annotations

from typing import Literal

# Inputs by the name of their attribute: those of `SizingInput`, of its `Effort`s, and the memory of its accelerator.
# Where a user writes such a value is none of the calculation's business: `resolution.written` knows it for each.
SizingAttribute = Literal[
    "accelerator",
    "memory_bytes",
    "tensor_parallel_size",
    "geometry",
    "weight_bytes",
    "kv_cache_dtype",
    "memory_utilization_permille",
    "kv_cache_memory_bytes",
    "efforts",
    "policy",
    "preemption_risk_permille",
    "shared_prefix_tokens",
    "template_overhead_tokens",
    "speculative_tokens",
    "speculative_draft_layers",
    "draft_weight_bytes",
    "vision_weight_bytes",
    "engine_version",
    "max_num_seqs",
    "max_model_len",
    "max_num_batched_tokens",
    "block_size",
    "prefix_caching",
    "expert_parallel",
    "enforce_eager",
    "time_per_output_token_ms",
    "load_bandwidth_bytes_per_s",
    "pre_stop_seconds",
    "measured_num_blocks",
    "measured_block_size",
    "name",
    "prompt_tokens",
    "thinking_tokens",
    "answer_tokens",
    "share",
    "prompt_distribution",
    "output_distribution",
    "observed",
]


class SizingError(ValueError):
    """An input the calculation cannot work with.

    `attribute` is the input, None where no single one is to blame; `effort` is the effort's name where it is one of
    an effort's.
    """

    def __init__(self, message: str, *, attribute: SizingAttribute | None = None, effort: str | None = None) -> None:
        super().__init__(message)
        self.attribute = attribute
        self.effort = effort


class GeometryError(SizingError):
    """A `config.json` that does not describe a model; `field` is its key."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message, attribute="geometry")
        self.field = field
