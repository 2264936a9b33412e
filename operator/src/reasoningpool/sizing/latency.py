"""Times from the bandwidth model and from the budgets: decode, drain, start. Estimates: no GPU was measured."""

from __future__ import annotations

from math import ceil

from reasoningpool.sizing import constants as c
from reasoningpool.sizing.types import SizingInput


def modelled_time_per_output_token_ms(inputs: SizingInput, *, sequences: int, kv_bytes_read: float) -> float:
    """Milliseconds of one decode step with `sequences` running.

    `(weights read + KV read) / (bandwidth * 0.7) + 2 ms + all-reduces`. 100 ms on CPU.
    """
    bandwidth = inputs.accelerator.memory_bandwidth_bytes_per_s
    if inputs.accelerator.memory_bytes is None:
        return c.CPU_TIME_PER_OUTPUT_TOKEN_MS
    if bandwidth is None or bandwidth <= 0:
        return c.UNKNOWN_TIME_PER_OUTPUT_TOKEN_MS
    geometry, ranks = inputs.geometry, inputs.tensor_parallel_size
    weights = geometry.weights.bytes_read_per_step(geometry.weight_format, ranks, sequences)
    if inputs.weight_bytes is not None:
        weights *= inputs.weight_bytes / geometry.weights.bytes_total(geometry.weight_format)
    moved = (weights + kv_bytes_read) / (bandwidth * c.BANDWIDTH_SHARE.value)
    reduces = 2 * geometry.num_layers * c.ALL_REDUCE_SECONDS.value if ranks > 1 else 0.0
    return 1000 * (moved + c.STEP_SECONDS_FIXED.value + reduces)


def prefill_tokens_per_second(inputs: SizingInput) -> float:
    """Prompt tokens a replica computes per second when it does nothing else (compute model).

    `bandwidth * FLOP per byte * 0.5 * GPUs / (2 * parameters used per token)`; twice that with FP8 weights on
    GPUs that multiply in FP8. Qwen3-32B-FP8 on one H100: about 13,000. Without a known bandwidth the stand-ins
    of `constants`.
    """
    accelerator, geometry = inputs.accelerator, inputs.geometry
    if accelerator.memory_bytes is None:
        return c.CPU_PREFILL_TOKENS_PER_S
    bandwidth = accelerator.memory_bandwidth_bytes_per_s
    if bandwidth is None or bandwidth <= 0:
        return c.UNKNOWN_PREFILL_TOKENS_PER_S
    capability = accelerator.compute_capability or (0, 0)
    per_byte = c.FLOP_PER_BYTE.get(capability, c.FLOP_PER_BYTE_OTHER)
    if capability >= c.FP8_FROM_CAPABILITY and geometry.weight_format.multiplies_in_fp8:
        per_byte *= 2
    counts = geometry.weights
    experts = counts.experts * counts.experts_per_token / counts.experts_total if counts.experts_total else 0.0
    used = counts.linear + counts.replicated_linear + experts
    return bandwidth * per_byte * c.COMPUTE_SHARE.value * inputs.tensor_parallel_size / (2 * max(used, 1.0))


def least_step_seconds(inputs: SizingInput) -> float:
    """Time of a step that computes next to nothing: the weights are read once, whatever the prompt's length."""
    return modelled_time_per_output_token_ms(inputs, sequences=1, kv_bytes_read=0.0) / 1000


def shutdown_timeout_seconds(output_tokens: int, time_per_output_token_ms: float) -> int:
    """Time the longest run may still need: all its tokens, plus 10 s for its prefill; at least 15 s.

    5,120 tokens at 40 ms: 215 s.
    """
    return max(c.MIN_SHUTDOWN_TIMEOUT_S, ceil(output_tokens * time_per_output_token_ms / 1000) + c.DRAIN_MARGIN_S)


def startup_budget_seconds(weight_bytes: int, load_bandwidth_bytes_per_s: int | None) -> int:
    """Time a start may take: `1.5 * weights / bandwidth + 300 s`, at least 600 s."""
    bandwidth = load_bandwidth_bytes_per_s or c.LOAD_BANDWIDTH_BYTES_PER_S
    return max(c.STARTUP_FLOOR_S, ceil(c.LOAD_MARGIN * weight_bytes / bandwidth) + c.STARTUP_FIXED_S)
