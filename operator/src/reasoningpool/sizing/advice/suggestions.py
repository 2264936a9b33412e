"""What would make the budgets fit: candidate changes, nearest first, each checked by the calculation itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from reasoningpool.model.errors import SizingError
from reasoningpool.model.geometry import valid_tensor_parallel_sizes
from reasoningpool.sizing import constants as c
from reasoningpool.sizing.advice.budget_suggestions import shorter_budgets
from reasoningpool.sizing.engine_defaults import default_batched_tokens
from reasoningpool.sizing.frame import frame_of
from reasoningpool.sizing.kv.blocks import ceil_div
from reasoningpool.sizing.kv.kv_elements import is_16_bit
from reasoningpool.sizing.load.concurrency import largest
from reasoningpool.sizing.memory import free_bytes
from reasoningpool.sizing.solve import Shortfall, shortfall
from reasoningpool.sizing.types import Change, KVCacheDType, SizingInput
from reasoningpool.sizing.units import human_bytes
from reasoningpool.sizing.validate import validate

_MAX_RANKS: Final = 16
_MIB: Final = 1 << 20
_MOST_PERCENT: Final = 95  # the resource takes more, but then graph capture often runs out of memory
_KEPT_SHARE: Final = 0.5  # a budget cut to less than this is further away than another GPU


@dataclass(frozen=True, slots=True)
class Remedies:
    """Changes that fit, and what to say."""

    changes: tuple[Change, ...]
    texts: tuple[str, ...]


def remedies(inputs: SizingInput, short: Shortfall) -> Remedies:
    """Changes that really fit, nearest first; when there is none, what would be needed."""
    found = tuple(change for change in _candidates(inputs) if fits(change.inputs))
    if found:
        return Remedies(found, tuple(change.text for change in found))
    combined = next((change for change in _combined(inputs) if fits(change.inputs)), None)
    if combined is not None:
        return Remedies((combined,), (combined.text,))
    product, memory = inputs.accelerator.product, short.frame.memory(inputs.max_num_seqs or 1)
    needed = short.frame.needed_bytes(inputs.max_num_seqs or 1)
    text = (
        f"no single change fits on {product}: {human_bytes(needed)} per GPU are needed with these settings, "
        f"{human_bytes(memory.weights)} of that for weights; take an accelerator with more memory, a quantized "
        "checkpoint or a smaller model"
    )
    return Remedies((), (text,))


def fits(inputs: SizingInput) -> bool:
    """Whether a plan exists."""
    try:
        validate(inputs)
        frame, too_long = frame_of(inputs)
    except SizingError:
        return False
    return shortfall(frame, too_long, inputs.max_num_seqs or 1) is None


def _candidates(inputs: SizingInput) -> Iterator[Change]:
    """Single changes in the order of what they ask of the user."""
    yield from _explicit_limits(inputs)
    yield from _fp8(inputs)
    budgets = tuple(shorter_budgets(inputs, fits))
    yield from (shorter.change for shorter in budgets if shorter.kept >= _KEPT_SHARE)
    yield from _utilization(inputs)
    yield from _pool(inputs)
    yield from _batch(inputs)
    yield from _ranks(inputs)
    far = (shorter for shorter in budgets if shorter.kept < _KEPT_SHARE)
    yield from (shorter.change for shorter in sorted(far, key=lambda shorter: -shorter.kept))


def _combined(inputs: SizingInput) -> Iterator[Change]:
    """Two or three changes together, tried only when no single change fits."""
    for first in (*_fp8(inputs), *_all_memory(inputs), *_small_batch(inputs)):
        yield from (_both(*_least_memory(inputs, first, second)) for second in _candidates(first.inputs))
    for base in (None, *_fp8(inputs)):
        for ranks in _more_ranks(base.inputs if base else inputs):
            for shorter in shorter_budgets(ranks.inputs, fits):
                change = _both(ranks, shorter.change)
                yield _both(base, change) if base else change


def _all_memory(inputs: SizingInput) -> Iterator[Change]:
    """The most the engine may be given of a GPU that nothing else uses, whether or not that is enough by itself."""
    total = inputs.accelerator.memory_bytes
    if total is None or inputs.kv_cache_memory_bytes is not None:
        return
    highest = min(_MOST_PERCENT, 100 * free_bytes(total) // total)
    if highest > inputs.memory_utilization_permille // 10:
        changed = replace(inputs, memory_utilization_permille=10 * highest)
        yield Change(text=f"set memoryUtilizationPercent to {highest}", inputs=changed)


def _least_memory(inputs: SizingInput, first: Change, second: Change) -> tuple[Change, Change]:
    """Both changes, where the first gives the engine more memory, with the smallest percent that the second needs."""
    stated, highest = (given.memory_utilization_permille // 10 for given in (inputs, first.inputs))

    def changed(percent: int) -> SizingInput:
        return replace(second.inputs, memory_utilization_permille=10 * percent)

    percent = 1 + largest(lambda n: not fits(changed(n)), up_to=highest, at_least=stated) if highest > stated else 0
    if not stated < percent < highest:
        return first, second
    least = Change(
        text=f"set memoryUtilizationPercent to {percent}",
        inputs=replace(first.inputs, memory_utilization_permille=10 * percent),
    )
    return least, Change(text=second.text, inputs=changed(percent))


def _small_batch(inputs: SizingInput) -> Iterator[Change]:
    """The smallest prefill batch that any engine has by default, whether or not that is enough by itself."""
    frame, _ = frame_of(inputs)
    least = max(c.BATCHED_TOKENS_OTHER, inputs.max_num_seqs or 0)
    if least < frame.batched_tokens:
        changed = replace(inputs, max_num_batched_tokens=least)
        yield Change(text=f"set maxNumBatchedTokens to {least:,}", inputs=changed)


def _both(first: Change, second: Change) -> Change:
    return Change(text=f"{first.text} and {second.text}", inputs=second.inputs)


def _largest_fitting(change: Callable[[int], SizingInput], up_to: int) -> tuple[int, SizingInput] | None:
    value = largest(lambda n: n == 0 or fits(change(n)), up_to=up_to)
    return (value, change(value)) if value else None


def _explicit_limits(inputs: SizingInput) -> Iterator[Change]:
    """Stated limits that are themselves too large."""
    if inputs.max_model_len is not None:
        found = _largest_fitting(lambda n: replace(inputs, max_model_len=n), inputs.max_model_len - 1)
        derived = replace(inputs, max_model_len=None)
        if fits(derived):
            yield Change(text="leave maxModelLen out; the budgets need less", inputs=derived)
        elif found and found[0] >= max(effort.prompt_tokens + effort.output_tokens for effort in inputs.efforts):
            yield Change(text=f"set maxModelLen to {found[0]:,}", inputs=found[1])
    if inputs.max_num_seqs is not None:
        found = _largest_fitting(lambda n: replace(inputs, max_num_seqs=n), inputs.max_num_seqs - 1)
        if found:
            yield Change(text=f"set maxNumSeqs to {found[0]:,} or leave it out", inputs=found[1])


def _fp8(inputs: SizingInput) -> Iterator[Change]:
    capability = inputs.accelerator.compute_capability
    able = inputs.accelerator.memory_bytes is None or (capability is not None and capability >= c.FP8_FROM_CAPABILITY)
    if able and is_16_bit(inputs.kv_cache_dtype):
        yield Change(
            text="set kvCacheDType to FP8 (halves the KV bytes per token)",
            inputs=replace(inputs, kv_cache_dtype=KVCacheDType.FP8),
        )


def _utilization(inputs: SizingInput) -> Iterator[Change]:
    """The smallest percent that fits, above the stated one or from the engine's default on, whichever is lower."""
    total = inputs.accelerator.memory_bytes
    if total is None or inputs.kv_cache_memory_bytes is not None:
        return
    stated = inputs.memory_utilization_permille // 10

    def changed(percent: int) -> SizingInput:
        return replace(inputs, memory_utilization_permille=10 * percent)

    highest = min(_MOST_PERCENT, 100 * free_bytes(total) // total)
    lowest = max(c.UTILIZATION_PERCENT_BOUNDS[0], min(stated + 1, c.DEFAULT_UTILIZATION_PERCENT, highest))
    percent = 1 + largest(lambda n: not fits(changed(n)), up_to=highest, at_least=lowest - 1)
    if percent <= highest:
        yield Change(text=f"set memoryUtilizationPercent to {percent}", inputs=changed(percent))


def _pool(inputs: SizingInput) -> Iterator[Change]:
    """A stated pool made just large or small enough, or given up for the memory model."""
    if inputs.kv_cache_memory_bytes is None:
        return
    frame, _ = frame_of(inputs)
    blocks = frame.one_request_blocks
    if frame.layout.state_groups:
        blocks = max(blocks, inputs.max_num_seqs or 0)
    enough = ceil_div(blocks * frame.layout.bytes_per_block, _MIB)
    stated = ceil_div(inputs.kv_cache_memory_bytes, _MIB)

    def changed(mib: int) -> SizingInput:
        return replace(inputs, kv_cache_memory_bytes=mib * _MIB)

    if enough * _MIB > inputs.kv_cache_memory_bytes:
        yield Change(text=f"set kvCacheMemory to {enough}Mi or more", inputs=changed(enough))
    else:
        most = largest(lambda n: fits(changed(n)), up_to=stated - 1, at_least=enough - 1)
        if most >= enough:
            yield Change(text=f"set kvCacheMemory to {most}Mi or less", inputs=changed(most))
    if inputs.accelerator.memory_bytes is not None:
        yield Change(text="leave kvCacheMemory out", inputs=replace(inputs, kv_cache_memory_bytes=None))


def _batch(inputs: SizingInput) -> Iterator[Change]:
    """The device class's default where that is enough, else the most tokens that fit."""
    frame, _ = frame_of(inputs)
    least = max(c.BATCHED_TOKENS_OTHER, inputs.max_num_seqs or 0)  # no engine's default is smaller

    def changed(tokens: int) -> SizingInput:
        return replace(inputs, max_num_batched_tokens=tokens)

    tokens = max(default_batched_tokens(inputs), least)
    if tokens >= frame.batched_tokens or not fits(changed(tokens)):
        tokens = largest(lambda n: fits(changed(n)), up_to=min(tokens, frame.batched_tokens) - 1, at_least=least - 1)
    if tokens >= least:
        yield Change(text=f"set maxNumBatchedTokens to {tokens:,}", inputs=changed(tokens))


def _ranks(inputs: SizingInput) -> Iterator[Change]:
    """The fewest GPUs that are enough."""
    enough = next((change for change in _more_ranks(inputs) if fits(change.inputs)), None)
    if enough is not None:
        yield enough


def _more_ranks(inputs: SizingInput) -> Iterator[Change]:
    for ranks in valid_tensor_parallel_sizes(inputs.geometry.num_attention_heads, _MAX_RANKS):
        if ranks > inputs.tensor_parallel_size:
            yield Change(text=f"set perReplica to {ranks} GPUs", inputs=replace(inputs, tensor_parallel_size=ranks))
