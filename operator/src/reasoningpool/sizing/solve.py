"""The calculation itself, without words: from inputs to limits, or to the first thing that is short."""

from __future__ import annotations

from dataclasses import dataclass

from reasoningpool.sizing.engine_defaults import sequence_cap
from reasoningpool.sizing.frame import Frame, frame_of
from reasoningpool.sizing.load.concurrency import largest
from reasoningpool.sizing.load.demand import EffortTokens
from reasoningpool.sizing.memory import MemoryShares, free_bytes
from reasoningpool.sizing.operating_point import Load
from reasoningpool.sizing.types import ConcurrencyPolicy, FitUnit, Limit, SizingInput, SizingWarning

_PERMILLE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """The budgets do not fit, and by how much."""

    what: str
    needed: int
    available: int
    frame: Frame
    unit: FitUnit = FitUnit.BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The derived limits."""

    frame: Frame
    memory: MemoryShares
    load: Load
    worst_case: int
    derived: int  # what the policy and the other limits give
    derived_limit: Limit
    sequences: int  # the explicit number where one is stated
    limit: Limit
    preempted_share: float  # expected at `sequences`, full load
    tpot_ms: float
    warnings: tuple[SizingWarning, ...]


def shortfall(frame: Frame, too_long: EffortTokens | None, sequences: int) -> Shortfall | None:
    """The first thing that does not fit with `sequences` as the engine's limit, `None` when one request fits."""
    inputs = frame.inputs
    if too_long is not None:
        native = inputs.geometry.native_context_tokens
        tokens = too_long.prompt + too_long.output
        what = (
            f"effort {too_long.name!r} needs {tokens:,} tokens (prompt {too_long.prompt:,}, thinking and answer "
            f"{too_long.output:,}); the model's native context is {native:,}, {tokens - native:,} too few"
        )
        return Shortfall(what=what, needed=tokens, available=native, frame=frame, unit=FitUnit.TOKENS)
    shares = frame.memory(sequences)
    one = frame.one_request_blocks * frame.layout.bytes_per_block
    total = inputs.accelerator.memory_bytes
    needed = frame.needed_bytes(sequences)
    if total is not None:
        over = _over_device(frame, shares, total, needed)
        if over is not None:
            return over
    if frame.blocks(sequences) >= frame.one_request_blocks:
        return _state_slots(frame, shares, sequences)
    name = max(frame.efforts, key=lambda effort: effort.footprint).name
    if inputs.kv_cache_memory_bytes is not None:
        what = f"the stated KV pool cannot hold one request of {frame.max_model_len:,} tokens (effort {name!r})"
        return Shortfall(what=what, needed=one, available=shares.pool, frame=frame)
    what = (
        f"the weights and the engine's own memory leave too little KV cache for one request of "
        f"{frame.max_model_len:,} tokens (effort {name!r})"
        if shares.pool > 0
        else "the weights and the engine's own memory leave nothing for KV"
    )
    return Shortfall(what=what, needed=needed, available=shares.requested, frame=frame)


def _state_slots(frame: Frame, shares: MemoryShares, sequences: int) -> Shortfall | None:
    """A hybrid engine refuses to start with more sequences than the pool has state blocks."""
    blocks = shares.pool // frame.layout.bytes_per_block
    if not frame.layout.state_groups or sequences <= blocks:
        return None
    return Shortfall(
        what=f"the pool has {blocks:,} state blocks, fewer than maxNumSeqs {sequences:,}; the engine rejects that",
        needed=sequences * frame.layout.bytes_per_block,
        available=shares.pool,
        frame=frame,
    )


def _over_device(frame: Frame, shares: MemoryShares, total: int, in_all: int) -> Shortfall | None:
    free = free_bytes(total)
    stated = frame.inputs.kv_cache_memory_bytes
    if stated is not None:
        needed = shares.weights + stated
        what = "weights and the stated KV pool exceed the GPU's memory"
    else:
        needed = shares.requested
        what = "the memory utilization asks for more than is free on an idle GPU (the driver keeps some)"
        if needed > free and in_all > free:  # a lower utilization would not help
            needed, what = in_all, "one request with the weights and the engine's own memory exceeds the GPU's memory"
    return Shortfall(what=what, needed=needed, available=free, frame=frame) if needed > free else None


def solve(inputs: SizingInput) -> Solution | Shortfall:
    """Derive the limits. `inputs` are valid."""
    frame, too_long = frame_of(inputs)
    short = shortfall(frame, too_long, inputs.max_num_seqs or 1)
    if short is not None:
        return short
    load = Load.of(frame)
    tpot = load.time_per_output_token_ms
    risk = inputs.preemption_risk_permille / _PERMILLE
    cap = min(sequence_cap(inputs), frame.batched_tokens)
    worst = max(1, load.most_in_the_worst_case(cap))
    statistical = inputs.policy is ConcurrencyPolicy.STATISTICAL
    by_kv = load.most_within(risk, at_least=worst, up_to=cap) if statistical else worst
    derived, limit = by_kv, _kv_limit(frame, load.demand.mean) if by_kv < cap else Limit.ENGINE_CAP
    objective = inputs.time_per_output_token_ms
    warnings: list[SizingWarning] = []
    if objective is not None:
        by_time = largest(lambda n: tpot(n) <= objective, up_to=derived)
        if by_time < derived:
            derived, limit = max(1, by_time), Limit.TIME_PER_OUTPUT_TOKEN
        if by_time == 0:
            message = (
                f"the objective of {objective} ms per output token is below the {tpot(1):.0f} ms that one sequence "
                "alone takes by the bandwidth model; maxNumSeqs is 1"
            )
            warnings.append(SizingWarning("time_per_output_token_ms", message))
    stated = inputs.max_num_seqs
    sequences = stated if stated is not None else derived
    return Solution(
        frame=frame,
        memory=frame.memory(sequences),
        load=load,
        worst_case=worst,
        derived=derived,
        derived_limit=limit,
        sequences=sequences,
        limit=Limit.EXPLICIT if stated is not None else limit,
        preempted_share=load.preemption(sequences).share,
        tpot_ms=max(tpot(sequences), float(objective)) if objective is not None else tpot(sequences),
        warnings=tuple(warnings),
    )


def _kv_limit(frame: Frame, mean_blocks: float) -> Limit:
    """State slots when the fixed state of a hybrid is the larger part of what a request holds."""
    state = frame.layout.state_groups * frame.layout.state_blocks
    return Limit.STATE_SLOTS if 2 * state > mean_blocks else Limit.KV_CACHE
