"""Checks of the calculation's inputs that do not depend on its results."""

from __future__ import annotations

from math import isfinite
from typing import Final

from reasoningpool.model.errors import SizingError
from reasoningpool.model.geometry import valid_tensor_parallel_sizes
from reasoningpool.model.sharding import check_shards
from reasoningpool.sizing.load.observed import ObservedTokens
from reasoningpool.sizing.types import Effort, SizingInput, TokenQuantiles

_MAX_BYTES: Final = 1 << 60
_MAX_LIMIT: Final = 10**9
_MAX_DRAFT_LAYERS: Final = 1_024  # layers are counted out one by one


def validate(inputs: SizingInput) -> None:
    """Raise `SizingError` naming the field for anything no plan can be made from."""
    _memory(inputs)
    _parallelism(inputs)
    if not inputs.efforts:
        raise SizingError("a tier needs at least one effort", field="efforts")
    for effort in inputs.efforts:
        _effort(effort)
    _at_least(inputs.shared_prefix_tokens, 0, "sharedPrefixTokens")
    _at_least(inputs.template_overhead_tokens, 0, "templateOverheadTokens")
    _at_least(inputs.speculative_tokens, 0, "speculative.tokens")
    _at_least(inputs.speculative_draft_layers, 0, "speculative.draftLayers")
    if inputs.speculative_draft_layers > _MAX_DRAFT_LAYERS:
        message = f"speculative.draftLayers is {inputs.speculative_draft_layers}; write {_MAX_DRAFT_LAYERS} or fewer"
        raise SizingError(message, field="speculative.draftLayers")
    _at_least(inputs.draft_weight_bytes, 0, "draft weight bytes")
    _at_least(inputs.pre_stop_seconds, 0, "preStopSeconds")
    if not 0 <= inputs.preemption_risk_permille <= 1000:
        message = f"preemptionRiskPermille is {inputs.preemption_risk_permille}; write 0 to 1000"
        raise SizingError(message, field="concurrency.preemptionRiskPermille")
    for value, name in (
        (inputs.max_num_seqs, "maxNumSeqs"),
        (inputs.max_model_len, "maxModelLen"),
        (inputs.max_num_batched_tokens, "maxNumBatchedTokens"),
        (inputs.time_per_output_token_ms, "objectives.timePerOutputTokenMilliseconds"),
        (inputs.load_bandwidth_bytes_per_s, "loadBandwidth"),
        (inputs.measured_num_blocks, "measured blocks"),
        (inputs.measured_block_size, "measured block size"),
    ):
        if value is not None:
            _at_least(value, 1, name)


def _memory(inputs: SizingInput) -> None:
    accelerator = inputs.accelerator
    if accelerator.memory_bytes is None and inputs.kv_cache_memory_bytes is None:
        message = (
            f"{accelerator.product} has no memory of its own to take a share of: "
            "state the KV pool, for example kvCacheMemory: 4Gi"
        )
        raise SizingError(message, field="engine.kvCacheMemory")
    for value, name in (
        (accelerator.memory_bytes, "accelerator memory"),
        (inputs.kv_cache_memory_bytes, "engine.kvCacheMemory"),
        (inputs.weight_bytes, "model weight bytes"),
    ):
        if value is not None and not 1 <= value <= _MAX_BYTES:
            message = f"{name} is {value} bytes; write 1 byte to 1 EiB"
            raise SizingError(message, field=name)
    if not 1 <= inputs.memory_utilization_permille <= 1000:
        percent = inputs.memory_utilization_permille / 10
        message = f"memory utilization is {percent:g} %; write more than 0 and at most 100"
        raise SizingError(message, field="engine.memoryUtilizationPercent")


def _parallelism(inputs: SizingInput) -> None:
    ranks, heads = inputs.tensor_parallel_size, inputs.geometry.num_attention_heads
    if ranks < 1 or heads % ranks:
        sizes = ", ".join(str(size) for size in valid_tensor_parallel_sizes(heads, max(1, ranks)))
        message = (
            f"perReplica is {ranks}, which does not divide the model's {heads} attention heads; "
            f"sizes up to {max(1, ranks)} that do: {sizes}"
        )
        raise SizingError(message, field="accelerator.perReplica")
    kv_heads = inputs.geometry.kv_heads
    if not inputs.geometry.is_latent and max(ranks, kv_heads) % min(ranks, kv_heads):
        message = (
            f"perReplica is {ranks}, which neither divides nor is a multiple of the model's {kv_heads} KV heads; "
            f"sizes up to {ranks} that do: {', '.join(str(size) for size in _sizes(inputs, ranks))}"
        )
        raise SizingError(message, field="accelerator.perReplica")
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
    _at_least(effort.prompt_tokens, 1, f"{where}.promptTokens")
    _at_least(effort.thinking_tokens, 0, f"{where}.thinkingTokens")
    _at_least(effort.answer_tokens, 0, f"{where}.answerTokens")
    if effort.output_tokens < 1:
        message = f"effort {effort.name!r} has neither thinking nor answer tokens; give it at least one"
        raise SizingError(message, field=f"{where}.answerTokens")
    if not isfinite(effort.share) or effort.share <= 0:
        message = f"effort {effort.name!r} has share {effort.share}; write a number above 0"
        raise SizingError(message, field=f"{where}.sharePercent")
    if effort.observed is not None:
        _observed(effort.observed, f"{where}.tokenDistribution")
    for quantiles, name in (
        (effort.prompt_distribution, "prompt"),
        (effort.output_distribution, "output"),
    ):
        if quantiles is not None:
            _quantiles(quantiles, f"{where}.tokenDistribution.{name}")


def _observed(observed: ObservedTokens, where: str) -> None:
    counts = {len(values) for values in (observed.requests, observed.prompts, observed.outputs)}
    numbers = (*observed.requests, *observed.prompts, *observed.outputs)
    if len(counts) != 1 or not observed.requests or not all(isfinite(value) and value >= 0 for value in numbers):
        raise SizingError(f"{where}: classes need one count, prompt and output each, from 0", field=where)
    if not any(observed.requests):
        raise SizingError(f"{where}: there is no request in any class", field=where)


def _quantiles(quantiles: TokenQuantiles, where: str) -> None:
    if not 1 <= quantiles.p50 <= quantiles.p90 <= quantiles.p99 <= _MAX_LIMIT:
        message = f"{where}: p50 {quantiles.p50}, p90 {quantiles.p90}, p99 {quantiles.p99} must be positive and rise"
        raise SizingError(message, field=where)


def _at_least(value: int, low: int, name: str) -> None:
    if value < low:
        message = f"{name} is {value}; write {low} or more"
        raise SizingError(message, field=name)
