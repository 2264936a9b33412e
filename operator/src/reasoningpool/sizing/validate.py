"""Checks of the calculation's inputs that do not depend on its results."""

from __future__ import annotations

from math import isfinite
from typing import Final

from reasoningpool.model.errors import SizingAttribute, SizingError
from reasoningpool.model.geometry import valid_tensor_parallel_sizes
from reasoningpool.model.sharding import check_shards
from reasoningpool.sizing.observed import ObservedTokens
from reasoningpool.sizing.types import Effort, SizingInput, TokenQuantiles

_MAX_BYTES: Final = 1 << 60
_MAX_LIMIT: Final = 10**9
_MAX_DRAFT_LAYERS: Final = 1_024  # layers are counted out one by one


def validate(inputs: SizingInput) -> None:
    """Raise `SizingError` naming the attribute for anything no plan can be made from."""
    _memory(inputs)
    _known(inputs)
    _parallelism(inputs)
    if not inputs.efforts:
        raise SizingError("a tier needs at least one effort", attribute="efforts")
    for effort in inputs.efforts:
        _effort(effort)
    _at_least(inputs.shared_prefix_tokens, 0, "sharedPrefixTokens", "shared_prefix_tokens")
    _at_least(inputs.template_overhead_tokens, 0, "templateOverheadTokens", "template_overhead_tokens")
    _at_least(inputs.speculative_tokens, 0, "speculative.tokens", "speculative_tokens")
    _at_least(inputs.speculative_draft_layers, 0, "speculative.draftLayers", "speculative_draft_layers")
    if inputs.speculative_draft_layers > _MAX_DRAFT_LAYERS:
        message = f"speculative.draftLayers is {inputs.speculative_draft_layers}; write {_MAX_DRAFT_LAYERS} or fewer"
        raise SizingError(message, attribute="speculative_draft_layers")
    _at_least(inputs.draft_weight_bytes, 0, "draft weight bytes", "draft_weight_bytes")
    _at_least(inputs.pre_stop_seconds, 0, "preStopSeconds", "pre_stop_seconds")
    if not 0 <= inputs.preemption_risk_permille <= 1000:
        message = f"preemptionRiskPermille is {inputs.preemption_risk_permille}; write 0 to 1000"
        raise SizingError(message, attribute="preemption_risk_permille")
    for attribute, value, words in _positive(inputs):
        if value is not None:
            _at_least(value, 1, words, attribute)


def _positive(inputs: SizingInput) -> tuple[tuple[SizingAttribute, int | None, str], ...]:
    """What must be at least 1 where it is stated, and what a message calls it."""
    return (
        ("max_num_seqs", inputs.max_num_seqs, "maxNumSeqs"),
        ("max_model_len", inputs.max_model_len, "maxModelLen"),
        ("max_num_batched_tokens", inputs.max_num_batched_tokens, "maxNumBatchedTokens"),
        (
            "time_per_output_token_ms",
            inputs.time_per_output_token_ms,
            "objectives.timePerOutputTokenMilliseconds",
        ),
        ("load_bandwidth_bytes_per_s", inputs.load_bandwidth_bytes_per_s, "loadBandwidth"),
        ("measured_num_blocks", inputs.measured_num_blocks, "measured blocks"),
        ("measured_block_size", inputs.measured_block_size, "measured block size"),
    )


def _memory(inputs: SizingInput) -> None:
    accelerator = inputs.accelerator
    if accelerator.memory_bytes is None and inputs.kv_cache_memory_bytes is None:
        message = (
            f"{accelerator.product} has no memory of its own to take a share of; "
            "set the KV pool, for example kvCacheMemory: 4Gi"
        )
        raise SizingError(message, attribute="kv_cache_memory_bytes")
    sizes: tuple[tuple[SizingAttribute, int | None, str], ...] = (
        ("memory_bytes", accelerator.memory_bytes, "accelerator memory"),
        ("kv_cache_memory_bytes", inputs.kv_cache_memory_bytes, "engine.kvCacheMemory"),
        ("weight_bytes", inputs.weight_bytes, "model weight bytes"),
    )
    for attribute, value, words in sizes:
        if value is not None and not 1 <= value <= _MAX_BYTES:
            message = f"{words} is {value} bytes; write 1 byte to 1 EiB"
            raise SizingError(message, attribute=attribute)
    if not 1 <= inputs.memory_utilization_permille <= 1000:
        percent = inputs.memory_utilization_permille / 10
        message = f"memory utilization is {percent:g} %; write more than 0 and at most 100"
        raise SizingError(message, attribute="memory_utilization_permille")


def uneven_heads(heads: int, ranks: int) -> str | None:
    """What is wrong where the attention heads cannot be shared evenly by so many devices, and which numbers can."""
    if ranks >= 1 and heads % ranks == 0:
        return None
    sizes = ", ".join(str(size) for size in valid_tensor_parallel_sizes(heads, max(1, ranks)))
    return f"{ranks} devices cannot share {heads} attention heads evenly; up to {ranks} these can: {sizes}"


def _known(inputs: SizingInput) -> None:
    """Nothing is sized past a key whose use is not known; a stated pool takes the place of the model."""
    if inputs.geometry.unknown is None or inputs.kv_cache_memory_bytes is not None:
        return
    message = (
        f"{inputs.geometry.unknown}, so the KV pool cannot be told; state it (engine.kvCacheMemory) together with "
        "maxNumSeqs, as the engine's own log gives them"
    )
    raise SizingError(message, attribute="geometry")


def _parallelism(inputs: SizingInput) -> None:
    ranks = inputs.tensor_parallel_size
    if (problem := uneven_heads(inputs.geometry.num_attention_heads, ranks)) is not None:
        raise SizingError(problem, attribute="tensor_parallel_size")
    kv_heads = inputs.geometry.kv_heads
    if not inputs.geometry.is_latent and max(ranks, kv_heads) % min(ranks, kv_heads):
        message = (
            f"perReplica is {ranks}, which neither divides nor is a multiple of the model's {kv_heads} KV heads; "
            f"sizes up to {ranks} that do: {', '.join(str(size) for size in _sizes(inputs, ranks))}"
        )
        raise SizingError(message, attribute="tensor_parallel_size")
    check_shards(inputs.geometry, ranks, expert_parallel=inputs.expert_parallel)


def _sizes(inputs: SizingInput, up_to: int) -> tuple[int, ...]:
    """Tensor-parallel sizes that suit both the attention heads and the KV heads."""
    kv_heads = inputs.geometry.kv_heads
    heads = inputs.geometry.num_attention_heads
    return tuple(
        size for size in valid_tensor_parallel_sizes(heads, up_to) if not max(size, kv_heads) % min(size, kv_heads)
    )


def _effort(effort: Effort) -> None:
    where = f"efforts[{effort.name}]"
    _at_least(effort.prompt_tokens, 1, f"{where}.promptTokens", "prompt_tokens", effort)
    _at_least(effort.thinking_tokens, 0, f"{where}.thinkingTokens", "thinking_tokens", effort)
    _at_least(effort.answer_tokens, 0, f"{where}.answerTokens", "answer_tokens", effort)
    if effort.output_tokens < 1:
        message = f"effort {effort.name!r} has neither thinking nor answer tokens; give it at least one"
        raise SizingError(message, attribute="answer_tokens", effort=effort.name)
    if not isfinite(effort.share) or effort.share <= 0:
        message = f"effort {effort.name!r} has share {effort.share}; write a number above 0"
        raise SizingError(message, attribute="share", effort=effort.name)
    where = f"{where}.tokenDistribution"
    if effort.observed is not None and (fault := _fault_of_observed(effort.observed)):
        raise SizingError(f"{where}: {fault}", attribute="observed", effort=effort.name)
    if fault := _fault_of_quantiles(effort.prompt_distribution):
        raise SizingError(f"{where}.prompt: {fault}", attribute="prompt_distribution", effort=effort.name)
    if fault := _fault_of_quantiles(effort.output_distribution):
        raise SizingError(f"{where}.output: {fault}", attribute="output_distribution", effort=effort.name)


def _fault_of_observed(observed: ObservedTokens) -> str | None:
    counts = {len(values) for values in (observed.requests, observed.prompts, observed.outputs)}
    numbers = (*observed.requests, *observed.prompts, *observed.outputs)
    if len(counts) != 1 or not observed.requests or not all(isfinite(value) and value >= 0 for value in numbers):
        return "classes need one count, prompt and output each, from 0"
    return None if any(observed.requests) else "there is no request in any class"


def _fault_of_quantiles(quantiles: TokenQuantiles | None) -> str | None:
    if quantiles is None or 1 <= quantiles.p50 <= quantiles.p90 <= quantiles.p99 <= _MAX_LIMIT:
        return None
    return f"p50 {quantiles.p50}, p90 {quantiles.p90}, p99 {quantiles.p99} must be positive and rise"


def _at_least(value: int, low: int, words: str, attribute: SizingAttribute, effort: Effort | None = None) -> None:
    if value < low:
        message = f"{words} is {value}; write {low} or more"
        raise SizingError(message, attribute=attribute, effort=effort.name if effort else None)
