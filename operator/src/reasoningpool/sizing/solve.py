"""The calculation itself, without words: from inputs to limits, or to the first thing that is short."""

from __future__ import annotations

from dataclasses import dataclass, replace

from reasoningpool.sizing import latency
from reasoningpool.sizing.blocks import KVLayout, ceil_div, kv_layout
from reasoningpool.sizing.concurrency import BlockDemand, largest
from reasoningpool.sizing.demand import EffortTokens, ResidentTokens, effort_tokens, resident_tokens
from reasoningpool.sizing.errors import SizingError
from reasoningpool.sizing.limits import default_batched_tokens, sequence_cap
from reasoningpool.sizing.memory import MemoryShares, free_bytes, memory_shares
from reasoningpool.sizing.types import ConcurrencyPolicy, KVCacheDType, Limit, SizingInput

_PERMILLE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What follows from the inputs alone, whatever the number of sequences."""

    inputs: SizingInput
    dtype: KVCacheDType
    layout: KVLayout
    efforts: tuple[EffortTokens, ...]
    max_model_len: int
    batched_tokens: int

    @property
    def footprint(self) -> int:
        """Tokens of the largest effort, in whole blocks."""
        tokens = max(effort.footprint for effort in self.efforts)
        return ceil_div(tokens, self.layout.block_size) * self.layout.block_size

    @property
    def largest_blocks(self) -> int:
        """Pool blocks of the largest request while it decodes."""
        return max(self.layout.request_blocks(effort.footprint) for effort in self.efforts)

    @property
    def shared_tokens(self) -> int:
        """Tokens of the shared prefix that whole blocks hold once for all requests."""
        if not self.inputs.prefix_caching:
            return 0
        shared = min(self.inputs.shared_prefix_tokens, *(effort.prompt for effort in self.efforts))
        return shared // self.layout.block_size * self.layout.block_size

    @property
    def shared_blocks(self) -> int:
        """Blocks of the shared prefix, held once."""
        return self.layout.full_groups * (self.shared_tokens // self.layout.block_size)

    def memory(self, sequences: int) -> MemoryShares:
        """Memory shares at this many sequences; the pool is the measured one, which needs no reserve, if smaller."""
        shares = memory_shares(self.inputs, batched_tokens=self.batched_tokens, sequences=sequences)
        measured = self.measured_pool_bytes
        return shares if measured is None or measured >= shares.pool else replace(shares, pool=measured, reserve=0)

    @property
    def measured_pool_bytes(self) -> int | None:
        """The pool an engine reported, in this layout's blocks: what counts is how many tokens it holds."""
        blocks, size = self.inputs.measured_num_blocks, self.inputs.measured_block_size
        if blocks is None or size is None:
            return None
        return blocks * size // self.layout.block_size * self.layout.bytes_per_block

    def blocks(self, sequences: int) -> int:
        """Blocks of the pool at this many sequences, the null block included."""
        return max(0, self.memory(sequences).pool) // self.layout.bytes_per_block

    def free_blocks(self, sequences: int) -> int:
        """Blocks for requests' own tokens: without the null block, the shared prefix and prefills in flight."""
        in_prefill = sequences * self.max_model_len
        transient = self.layout.transient_blocks(in_prefill, self.batched_tokens)
        return self.blocks(sequences) - 1 - self.shared_blocks - transient

    @property
    def one_request_blocks(self) -> int:
        """Blocks the engine asks for before it starts: one request of the longest length, and the null block."""
        steady = self.largest_blocks + self.layout.transient_blocks(self.max_model_len, self.batched_tokens)
        return 1 + max(self.layout.planner_blocks(self.max_model_len, self.batched_tokens), steady)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """The budgets do not fit, and by how much."""

    what: str
    needed_bytes: int
    available_bytes: int
    frame: Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The derived limits."""

    frame: Frame
    memory: MemoryShares
    resident: ResidentTokens
    mean_blocks: float
    worst_case: int
    derived: int  # what the policy and the other limits give
    derived_limit: Limit
    sequences: int  # the explicit number where one is stated
    limit: Limit
    overflow: float  # P(resident > usable) at `sequences`
    tpot_ms: float
    warnings: tuple[str, ...]


def frame_of(inputs: SizingInput) -> tuple[Frame, EffortTokens | None]:
    """Everything up to the number of sequences; the second value is the effort that is longer than the model allows."""
    dtype = KVCacheDType.BF16 if inputs.kv_cache_dtype is KVCacheDType.AUTO else inputs.kv_cache_dtype
    layout = kv_layout(
        inputs.geometry,
        inputs.accelerator,
        tensor_parallel=inputs.tensor_parallel_size,
        dtype=dtype,
        block_size=inputs.block_size,
        draft_layers=inputs.speculative_draft_layers,
        speculative_tokens=inputs.speculative_tokens,
        prefix_caching=inputs.prefix_caching,
    )
    native = inputs.geometry.native_context_tokens
    stated = inputs.max_model_len
    if stated is not None and stated > native:
        message = f"maxModelLen is {stated:,}; the engine refuses more than the model's native {native:,} tokens"
        raise SizingError(message, field="maxModelLen")
    efforts = effort_tokens(inputs, stated)
    longest = max(efforts, key=lambda effort: effort.footprint)
    too_long = longest if stated is None and longest.prompt + longest.output > native else None
    rounded = ceil_div(longest.footprint, layout.block_size) * layout.block_size
    frame = Frame(
        inputs=inputs,
        dtype=dtype,
        layout=layout,
        efforts=efforts,
        max_model_len=stated if stated is not None else min(rounded, native),
        batched_tokens=_batched_tokens(inputs),
    )
    return frame, too_long


def _batched_tokens(inputs: SizingInput) -> int:
    """The stated number, else the class's default; the engine wants at least `max_num_seqs`."""
    stated, sequences = inputs.max_num_batched_tokens, inputs.max_num_seqs
    if stated is None:
        return max(default_batched_tokens(inputs), sequences or 0)
    if sequences is not None and sequences > stated:
        message = f"maxNumBatchedTokens is {stated:,}, below maxNumSeqs {sequences:,}; the engine refuses that"
        raise SizingError(message, field="maxNumBatchedTokens")
    return stated


def shortfall(frame: Frame, too_long: EffortTokens | None, sequences: int) -> Shortfall | None:
    """The first thing that does not fit with `sequences` as the engine's limit, `None` when one request fits."""
    inputs = frame.inputs
    per_token = frame.layout.bytes_per_token
    if too_long is not None:
        native = inputs.geometry.native_context_tokens
        tokens = too_long.prompt + too_long.output
        what = (
            f"effort {too_long.name!r} needs {tokens:,} tokens (prompt {too_long.prompt:,}, thinking and answer "
            f"{too_long.output:,}); the model's native context is {native:,}, {tokens - native:,} too few"
        )
        return Shortfall(what=what, needed_bytes=tokens * per_token, available_bytes=native * per_token, frame=frame)
    shares = frame.memory(sequences)
    one = frame.one_request_blocks * frame.layout.bytes_per_block
    total = inputs.accelerator.memory_bytes
    if total is not None:
        over = _over_device(frame, shares, total)
        if over is not None:
            return over
    if frame.blocks(sequences) >= frame.one_request_blocks:
        return _state_slots(frame, shares, sequences)
    name = max(frame.efforts, key=lambda effort: effort.footprint).name
    if inputs.kv_cache_memory_bytes is not None:
        what = f"the stated KV pool cannot hold one request of {frame.max_model_len:,} tokens (effort {name!r})"
        return Shortfall(what=what, needed_bytes=one, available_bytes=shares.pool, frame=frame)
    what = (
        f"the weights and the engine's own memory leave too little for the KV of one request of "
        f"{frame.max_model_len:,} tokens (effort {name!r})"
        if shares.pool > 0
        else "the weights and the engine's own memory leave nothing for KV"
    )
    return Shortfall(what=what, needed_bytes=shares.beside_kv + one, available_bytes=shares.requested, frame=frame)


def _state_slots(frame: Frame, shares: MemoryShares, sequences: int) -> Shortfall | None:
    """A hybrid engine refuses to start with more sequences than the pool has state blocks."""
    blocks = shares.pool // frame.layout.bytes_per_block
    if not frame.layout.state_groups or sequences <= blocks:
        return None
    return Shortfall(
        what=f"the pool has {blocks:,} state blocks, fewer than maxNumSeqs {sequences:,}; the engine refuses that",
        needed_bytes=sequences * frame.layout.bytes_per_block,
        available_bytes=shares.pool,
        frame=frame,
    )


def _over_device(frame: Frame, shares: MemoryShares, total: int) -> Shortfall | None:
    free = free_bytes(total)
    stated = frame.inputs.kv_cache_memory_bytes
    if stated is not None:
        needed = shares.weights + stated
        what = "weights and the stated KV pool exceed the GPU's memory"
    else:
        needed = shares.requested
        what = "the memory utilization asks for more than is free on an idle GPU (the driver keeps some)"
    return Shortfall(what=what, needed_bytes=needed, available_bytes=free, frame=frame) if needed > free else None


def solve(inputs: SizingInput) -> Solution | Shortfall:
    """Derive the limits. `inputs` are valid."""
    frame, too_long = frame_of(inputs)
    short = shortfall(frame, too_long, inputs.max_num_seqs or 1)
    if short is not None:
        return short
    resident = resident_tokens(inputs, frame.efforts)
    demand = BlockDemand.of(resident, frame.layout, frame.shared_tokens)
    own_largest = frame.largest_blocks - frame.shared_blocks

    def tpot(sequences: int) -> float:
        kv_bytes = sequences * demand.mean * frame.layout.bytes_per_block
        return latency.modelled_time_per_output_token_ms(inputs, sequences=sequences, kv_bytes_read=kv_bytes)

    def worst_fits(sequences: int) -> bool:
        return sequences * own_largest <= frame.free_blocks(sequences)

    risk = inputs.preemption_risk_permille / _PERMILLE

    def statistically_fits(sequences: int) -> bool:
        return worst_fits(sequences) or demand.overflow(sequences, frame.free_blocks(sequences)) <= risk

    cap = min(sequence_cap(inputs), frame.batched_tokens)
    worst = max(1, largest(worst_fits, up_to=cap))
    statistical = inputs.policy is ConcurrencyPolicy.STATISTICAL
    by_kv = max(worst, largest(statistically_fits, up_to=cap)) if statistical else worst
    derived, limit = by_kv, _kv_limit(frame, demand.mean) if by_kv < cap else Limit.ENGINE_CAP
    objective = inputs.time_per_output_token_ms
    warnings: list[str] = []
    if objective is not None:
        by_time = largest(lambda n: tpot(n) <= objective, up_to=derived)
        if by_time < derived:
            derived, limit = max(1, by_time), Limit.TIME_PER_OUTPUT_TOKEN
        if by_time == 0:
            warnings.append(
                f"the objective of {objective} ms per output token is below the {tpot(1):.0f} ms that one sequence "
                "alone takes by the bandwidth model; maxNumSeqs is 1"
            )
    stated = inputs.max_num_seqs
    sequences = stated if stated is not None else derived
    fits = worst_fits(sequences)
    return Solution(
        frame=frame,
        memory=frame.memory(sequences),
        resident=resident,
        mean_blocks=demand.mean,
        worst_case=worst,
        derived=derived,
        derived_limit=limit,
        sequences=sequences,
        limit=Limit.EXPLICIT if stated is not None else limit,
        overflow=0.0 if fits else demand.overflow(sequences, frame.free_blocks(sequences)),
        tpot_ms=max(tpot(sequences), float(objective)) if objective is not None else tpot(sequences),
        warnings=tuple(warnings),
    )


def _kv_limit(frame: Frame, mean_blocks: float) -> Limit:
    """State slots when the fixed state of a hybrid is the larger part of what a request holds."""
    state = frame.layout.state_groups * frame.layout.state_blocks
    return Limit.STATE_SLOTS if 2 * state > mean_blocks else Limit.KV_CACHE
