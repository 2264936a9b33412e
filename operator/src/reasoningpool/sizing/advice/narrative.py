"""The calculation in words: the steps `explain` prints, and what a user should be warned of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from reasoningpool.sizing import constants as c
from reasoningpool.sizing.advice.waste import block_size_advice
from reasoningpool.sizing.frame import Frame
from reasoningpool.sizing.memory import evidence_of, free_bytes
from reasoningpool.sizing.solve import Shortfall, Solution
from reasoningpool.sizing.types import ConcurrencyPolicy, FitUnit, Limit, SizingWarning, Step
from reasoningpool.sizing.units import counted, fit_figure, human_bytes, permille

_LOW_HEADROOM_BYTES = c.GIB
_MANY_SEQUENCES = 256
_POOL_FORMULA = "what the plan counts on: likeliest - reserve"


def solution_steps(found: Solution, shutdown_timeout_s: int) -> tuple[Step, ...]:
    """All steps of a plan, in the order of docs/sizing.md."""
    frame, layout = found.frame, found.frame.layout
    blocks = frame.blocks(found.sequences)
    limit, native = _limit_words(found), frame.inputs.geometry.native_context_tokens
    longest = max(effort.output for effort in frame.efforts)
    return (
        *_kv_steps(frame),
        *_memory_steps(found),
        Step(
            name="usable KV tokens",
            value=f"{(blocks - 1) * layout.block_size:,} tokens",
            formula=f"({blocks:,} blocks - 1 null block) x {layout.block_size} tokens",
        ),
        *_demand_steps(found),
        Step(name="max_num_seqs", value=f"{found.sequences:,}", formula=limit),
        Step(
            name="preempted requests",
            value=f"{permille(found.preempted_share) / 10:.1f} %",
            formula=f"expected at full load; simulations of the scheduler mostly gave {c.PREEMPTED_SHARE_SEEN[0]:g} to "
            f"{c.PREEMPTED_SHARE_SEEN[1]:g} times what is expected",
        ),
        Step(
            name="max_model_len",
            value=f"{frame.max_model_len:,} tokens",
            formula=f"largest footprint in whole blocks, at most the native context of {native:,}"
            if frame.inputs.max_model_len is None
            else "stated",
        ),
        Step(
            name="max_num_batched_tokens",
            value=f"{frame.batched_tokens:,} tokens",
            formula="engine default of this class of device"
            if frame.inputs.max_num_batched_tokens is None
            else "stated",
        ),
        Step(
            name="shutdown timeout",
            value=f"{shutdown_timeout_s} s",
            formula=f"{longest:,} tokens x {found.tpot_ms:.1f} ms + {c.DRAIN_MARGIN_S} s, "
            f"at least {c.MIN_SHUTDOWN_TIMEOUT_S} s",
        ),
    )


def shortfall_steps(short: Shortfall) -> tuple[Step, ...]:
    """The steps as far as they go."""
    missing, of = max(0, short.needed - short.available), short.unit
    where = "per GPU" if of is FitUnit.BYTES else "the model's native context"
    return (
        *_kv_steps(short.frame),
        Step(name="needed", value=fit_figure(short.needed, of), formula=short.what),
        Step(name="available", value=fit_figure(short.available, of), formula=where),
        Step(name="missing", value=fit_figure(missing, of), formula="needed - available"),
    )


def _kv_steps(frame: Frame) -> Iterator[Step]:
    geometry, layout, inputs = frame.inputs.geometry, frame.layout, frame.inputs
    ranks = inputs.tensor_parallel_size
    layers = geometry.full_layers + inputs.speculative_draft_layers or geometry.sliding_layers
    if geometry.latent_dim is not None:
        how = f"{layers} layers x {geometry.latent_dim} latent values, whole on every GPU"
    else:
        heads = max(1, geometry.kv_heads // ranks)
        devices = counted(ranks, "GPU")
        how = f"2 x {layers} layers x {heads} of {geometry.kv_heads} KV heads at {devices} x {geometry.head_dim}"
    yield Step(
        name="KV bytes per token", value=f"{layout.bytes_per_token:,} bytes", formula=f"{how}, {frame.dtype.value}"
    )
    if layout.constant_blocks:
        kind = "sliding windows" if layout.sliding_groups else "linear-attention state"
        yield Step(
            name="constant per request",
            value=human_bytes(layout.constant_blocks * layout.bytes_per_block),
            formula=f"{kind}: {layout.constant_blocks} blocks x {layout.bytes_per_block:,} bytes",
        )


def _memory_steps(found: Solution) -> Iterator[Step]:
    inputs, shares = found.frame.inputs, found.memory
    reported = shares.pool == found.frame.measured_pool_bytes
    pool_words = "what an engine reported" if reported else "stated (kvCacheMemory); no memory model"
    if inputs.kv_cache_memory_bytes is not None:
        yield Step(name="KV pool", value=human_bytes(shares.pool), formula=pool_words)
        return
    total = inputs.accelerator.memory_bytes or 0
    percent = inputs.memory_utilization_permille / 10
    devices = counted(inputs.tensor_parallel_size, "GPU")
    largest = min(2 * found.sequences, c.MAX_CAPTURED_SIZE)
    for name, value, formula in (
        ("engine's share", shares.requested, f"{human_bytes(total)} of {inputs.accelerator.product} x {percent:g} %"),
        ("weights", shares.weights, f"per GPU, {devices} per replica{_rows(c.WEIGHT_SHARE)}"),
        ("other persistent memory", shares.overhead, f"libraries and communication buffers{_rows(*_OVERHEAD)}"),
        ("activation peak", shares.activation, f"{_batch_words(found)}{_rows(*_ACTIVATION)}"),
        ("CUDA graphs", shares.graphs, f"captured up to {largest} sequences{_rows(c.GRAPH_BYTES_PER_LAYER_AND_SIZE)}"),
        ("likeliest KV pool", shares.central_pool, "engine's share - weights - other - activation - graphs"),
        ("reserve", shares.reserve, f"distance to the safe end; {evidence_of(inputs).words()}"),
        ("KV pool", shares.pool, pool_words if reported else _POOL_FORMULA),
    ):  # fmt: skip
        yield Step(name=name, value=human_bytes(value), formula=formula)


_OVERHEAD = (c.NON_TORCH_BYTES, c.COMMUNICATION_BYTES, c.COMMUNICATION_BYTES_PCIE, c.COMMUNICATOR_BYTES)
_ACTIVATION = (c.FORWARD_INNER_COPIES, c.FORWARD_HIDDEN_COPIES, c.SAMPLER_SORT, c.SAMPLER_KERNEL, c.ENCODER_COPIES)


def _rows(*constants: c.Constant) -> str:
    """How many start-ups a figure's constants were read from."""
    rows = {row for constant in constants for row in constant.rows}
    return f"; constants from {counted(len(rows), 'start-up')}"


def _batch_words(found: Solution) -> str:
    return f"{found.frame.batched_tokens:,} batched tokens, {found.sequences:,} sequences"


def _demand_steps(found: Solution) -> Iterator[Step]:
    frame = found.frame
    largest = max(frame.efforts, key=lambda effort: effort.footprint)
    template = frame.inputs.template_overhead_tokens
    prompt = f"prompt {largest.prompt:,}" + (f" ({template} of them the chat template's)" if template else "")
    lookahead = f" + lookahead {largest.lookahead}" if largest.lookahead else ""
    yield Step(
        name="largest footprint",
        value=f"{frame.footprint:,} tokens",
        formula=f"effort {largest.name}: {prompt} + thinking and answer {largest.output:,}{lookahead}, in whole blocks",
    )
    yield Step(
        name="mean resident",
        value=f"{found.load.resident.mean:,.0f} tokens",
        formula="E[o (p + o/2)] / E[o]: long runs are seen more often, at a uniform phase of their growth",
    )
    yield Step(
        name="sequences in the worst case",
        value=f"{found.worst_case:,}",
        formula="every request at the largest footprint at once",
    )


def _limit_words(found: Solution) -> str:
    inputs = found.frame.inputs
    match found.limit:
        case Limit.KV_CACHE | Limit.STATE_SLOTS:
            what = "state slots" if found.limit is Limit.STATE_SLOTS else "the KV pool"
            if inputs.policy is ConcurrencyPolicy.WORST_CASE:
                return f"limited by {what}: no preemption whatever the mix"
            if found.sequences + 1 > found.load.carried(found.sequences + 1):
                return f"limited by {what}: a further sequence would wait for room instead of running"
            risk = inputs.preemption_risk_permille / 10
            return f"limited by {what}: the most with at most {risk:g} % of requests preempted"
        case Limit.TIME_PER_OUTPUT_TOKEN:
            objective = f"{inputs.time_per_output_token_ms} ms per output token"
            return f"limited by the objective of {objective} (bandwidth model)"
        case Limit.ENGINE_CAP:
            return "limited by the cap for this class of device"
        case Limit.EXPLICIT:
            return f"stated; derived was {found.derived:,} ({found.derived_limit.value})"
        case _:
            assert_never(found.limit)


def solution_warnings(found: Solution) -> tuple[SizingWarning, ...]:
    """What a user should know though the plan stands."""
    return (
        *_unknown_warnings(found),
        *found.warnings,
        *_explicit_warnings(found),
        *_memory_warnings(found),
        *block_size_advice(found),
    )


def _unknown_warnings(found: Solution) -> Iterator[SizingWarning]:
    unknown = found.frame.inputs.geometry.unknown
    if unknown is not None:
        yield SizingWarning(
            "geometry",
            f"{unknown}: KV bytes per token, weights and how many sequences the stated pool holds may be wrong by a "
            "factor; state maxNumSeqs from the engine's own log",
        )


def _explicit_warnings(found: Solution) -> Iterator[SizingWarning]:
    inputs, frame = found.frame.inputs, found.frame
    if inputs.max_num_seqs is not None and inputs.max_num_seqs > found.derived:
        yield SizingWarning(
            "max_num_seqs",
            f"maxNumSeqs {inputs.max_num_seqs:,} exceeds the derived {found.derived:,} ({found.derived_limit.value}); "
            f"expect up to {100 * found.preempted_share:.0f} % of requests preempted at full load",
        )
    if inputs.max_model_len is None:
        return
    for effort in inputs.efforts:
        needs = effort.prompt_tokens + inputs.template_overhead_tokens + effort.output_tokens
        if needs > inputs.max_model_len:
            yield SizingWarning(
                "max_model_len",
                f"maxModelLen {inputs.max_model_len:,} is below the {needs:,} tokens of effort {effort.name!r}: "
                "its longest requests are cut off or rejected",
            )
    if inputs.max_model_len > frame.footprint:
        yield SizingWarning(
            "max_model_len",
            f"maxModelLen {inputs.max_model_len:,} exceeds the largest footprint of {frame.footprint:,} tokens: a "
            "client that ignores the budgets can hold more than was planned for",
        )


def _memory_warnings(found: Solution) -> Iterator[SizingWarning]:
    inputs, shares = found.frame.inputs, found.memory
    total = inputs.accelerator.memory_bytes
    if total is None:
        return
    if inputs.kv_cache_memory_bytes is not None:
        needed = shares.beside_kv - shares.reserve + shares.pool
        if needed > free_bytes(total):
            yield SizingWarning(
                "kv_cache_memory_bytes",
                f"the stated KV pool with weights, activation and graphs comes to about {human_bytes(needed)} of "
                f"{human_bytes(free_bytes(total))}; the engine does not check this and may run out of memory",
            )
        return
    outside = total - shares.requested
    wanted = _LOW_HEADROOM_BYTES * (3 if found.sequences >= _MANY_SEQUENCES else 1)
    if outside < wanted:
        yield SizingWarning(
            "memory_utilization_permille",
            f"the memory utilization of {inputs.memory_utilization_permille / 10:g} % leaves {human_bytes(outside)}"
            f" outside the engine's share; engines before 0.21 capture graphs there and want {human_bytes(wanted)}",
        )
