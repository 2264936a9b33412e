"""What would make the budgets fit: candidate changes, nearest first, each checked by the calculation itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from reasoningpool.sizing.concurrency import largest
from reasoningpool.sizing.errors import SizingError
from reasoningpool.sizing.frame import frame_of
from reasoningpool.sizing.geometry import valid_tensor_parallel_sizes
from reasoningpool.sizing.kv_elements import is_16_bit
from reasoningpool.sizing.memory import free_bytes
from reasoningpool.sizing.solve import Shortfall, shortfall
from reasoningpool.sizing.types import Change, Effort, KVCacheDType, SizingInput
from reasoningpool.sizing.validate import validate

_FP8_FROM: Final = (8, 9)  # Ada; below it the engine's kernels refuse e4m3
_MAX_RANKS: Final = 16
_SMALL_BATCH: Final = 2_048
_UTILIZATION_CEILING: Final = 950
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
    gib = short.needed_bytes / (1 << 30)
    text = (
        f"no single change fits on {inputs.accelerator.product}: {gib:,.1f} GiB per GPU are needed with these "
        "settings; take an accelerator with more memory, a quantized checkpoint or a smaller model"
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
    budgets = tuple(_budgets(inputs))
    yield from (change for change, kept in budgets if kept >= _KEPT_SHARE)
    yield from _utilization(inputs)
    yield from _pool(inputs)
    yield from _batch(inputs)
    yield from _ranks(inputs)
    yield from (change for change, kept in budgets if kept < _KEPT_SHARE)


def _combined(inputs: SizingInput) -> Iterator[Change]:
    """Pairs, tried only when no single change fits."""
    bases = [inputs, *(change.inputs for change in _fp8(inputs))]
    for base in bases:
        for ranks in _ranks(base):
            texts = (_words(inputs, base), ranks.text)
            yield Change(text=" and ".join(text for text in texts if text), inputs=ranks.inputs)
            for budget, _ in _budgets(ranks.inputs):
                yield Change(text=" and ".join(t for t in (*texts, budget.text) if t), inputs=budget.inputs)
        for budget, _ in _budgets(base):
            yield Change(text=" and ".join(t for t in (_words(inputs, base), budget.text) if t), inputs=budget.inputs)


def _words(inputs: SizingInput, base: SizingInput) -> str:
    return "" if base.kv_cache_dtype == inputs.kv_cache_dtype else "set kvCacheDType to FP8"


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
        elif found:
            yield Change(text=f"set maxModelLen to {found[0]:,}", inputs=found[1])
    if inputs.max_num_seqs is not None:
        found = _largest_fitting(lambda n: replace(inputs, max_num_seqs=n), inputs.max_num_seqs - 1)
        if found:
            yield Change(text=f"set maxNumSeqs to {found[0]:,} or leave it out", inputs=found[1])


def _fp8(inputs: SizingInput) -> Iterator[Change]:
    capability = inputs.accelerator.compute_capability
    able = inputs.accelerator.memory_bytes is None or (capability is not None and capability >= _FP8_FROM)
    if able and is_16_bit(inputs.kv_cache_dtype):
        yield Change(
            text="set kvCacheDType to FP8 (halves the KV bytes per token)",
            inputs=replace(inputs, kv_cache_dtype=KVCacheDType.FP8),
        )


def _budgets(inputs: SizingInput) -> Iterator[tuple[Change, float]]:
    """Every effort cut to one common length."""
    if inputs.max_model_len is not None:
        return
    now = max(effort.prompt_tokens + effort.output_tokens for effort in inputs.efforts)
    ceiling = min(now, 4 * inputs.geometry.native_context_tokens)
    found = _largest_fitting(lambda n: replace(inputs, efforts=tuple(_cut(e, n) for e in inputs.efforts)), ceiling)
    if found is None:
        return
    _, changed = found
    pairs = tuple(zip(inputs.efforts, changed.efforts, strict=True))
    parts = [text for before, after in pairs for text in _cut_words(before, after)]
    if parts:
        kept = min(after.output_tokens / before.output_tokens for before, after in pairs)
        yield Change(text="shorten the budgets: " + ", ".join(parts), inputs=changed), kept


def _cut(effort: Effort, length: int) -> Effort:
    """The effort in at most `length` tokens: thinking gives way first, then prompt and answer in proportion."""
    rest = effort.prompt_tokens + effort.answer_tokens
    if rest + effort.thinking_tokens <= length:
        return effort
    if rest < length:
        return replace(effort, thinking_tokens=length - rest)
    answer = min(effort.answer_tokens, max(1, effort.answer_tokens * length // rest))
    thinking = 0 if answer else 1
    prompt = min(effort.prompt_tokens, max(1, length - answer - thinking))
    return replace(effort, prompt_tokens=prompt, thinking_tokens=thinking, answer_tokens=answer)


def _cut_words(before: Effort, after: Effort) -> Iterator[str]:
    for name, old, new in (
        ("thinkingTokens", before.thinking_tokens, after.thinking_tokens),
        ("answerTokens", before.answer_tokens, after.answer_tokens),
        ("promptTokens", before.prompt_tokens, after.prompt_tokens),
    ):
        if new < old:
            yield f"{name} of effort {before.name!r} to {new:,} (now {old:,})"


def _utilization(inputs: SizingInput) -> Iterator[Change]:
    total = inputs.accelerator.memory_bytes
    if total is None or inputs.kv_cache_memory_bytes is not None:
        return
    ceiling = min(_UTILIZATION_CEILING, free_bytes(total) * 1000 // total)
    target = ceiling // 10 * 10
    if target > 0 and target != inputs.memory_utilization_permille:
        yield Change(
            text=f"set memoryUtilizationPercent to {target // 10}",
            inputs=replace(inputs, memory_utilization_permille=target),
        )


def _pool(inputs: SizingInput) -> Iterator[Change]:
    """A stated pool made just large enough, or given up for the memory model."""
    if inputs.kv_cache_memory_bytes is None:
        return
    frame, _ = frame_of(inputs)
    mib = -(-frame.one_request_blocks * frame.layout.bytes_per_block // (1 << 20))
    yield Change(text=f"set kvCacheMemory to {mib}Mi or more", inputs=replace(inputs, kv_cache_memory_bytes=mib << 20))
    if inputs.accelerator.memory_bytes is not None:
        yield Change(text="leave kvCacheMemory out", inputs=replace(inputs, kv_cache_memory_bytes=None))


def _batch(inputs: SizingInput) -> Iterator[Change]:
    frame, _ = frame_of(inputs)
    target = max(_SMALL_BATCH, inputs.max_num_seqs or 0)
    if frame.batched_tokens > target:
        yield Change(
            text=f"set maxNumBatchedTokens to {target:,}", inputs=replace(inputs, max_num_batched_tokens=target)
        )


def _ranks(inputs: SizingInput) -> Iterator[Change]:
    for ranks in valid_tensor_parallel_sizes(inputs.geometry.num_attention_heads, _MAX_RANKS):
        changed = replace(inputs, tensor_parallel_size=ranks)
        if ranks > inputs.tensor_parallel_size and fits(changed):
            yield Change(text=f"set perReplica to {ranks} GPUs", inputs=changed)
            return
