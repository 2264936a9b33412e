"""What follows from the inputs alone, whatever the number of sequences: blocks, lengths, memory as a function of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from reasoningpool.model.errors import SizingError
from reasoningpool.sizing.engine_defaults import default_batched_tokens
from reasoningpool.sizing.kv.blocks import KVLayout, ceil_div, kv_layout
from reasoningpool.sizing.load.demand import EffortTokens, effort_tokens
from reasoningpool.sizing.memory import MemoryShares, memory_shares
from reasoningpool.sizing.types import KVCacheDType, SizingInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What follows from the inputs alone, whatever the number of sequences."""

    inputs: SizingInput
    dtype: KVCacheDType
    layout: KVLayout
    efforts: tuple[EffortTokens, ...]
    max_model_len: int
    batched_tokens: int
    _memory: dict[int, MemoryShares] = field(default_factory=dict, repr=False, compare=False)

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
        """Memory shares at this many sequences; the pool is the measured one, which needs no reserve, if smaller.

        Kept: the search for the number asks several times.
        """
        found = self._memory.get(sequences)
        if found is None:
            found = memory_shares(self.inputs, batched_tokens=self.batched_tokens, sequences=sequences)
            measured = self.measured_pool_bytes
            if measured is not None and measured < found.pool:
                found = replace(found, pool=measured, reserve=0)
            self._memory[sequences] = found
        return found

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

    def needed_bytes(self, sequences: int) -> int:
        """Memory of one GPU for everything: weights, the engine's own, and the KV of one request."""
        return self.memory(sequences).beside_kv + self.one_request_blocks * self.layout.bytes_per_block


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
        message = f"maxModelLen is {stated:,}; the engine allows at most the model's native {native:,} tokens"
        raise SizingError(message, attribute="max_model_len")
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
        message = f"maxNumBatchedTokens is {stated:,}, below maxNumSeqs {sequences:,}; the engine rejects that"
        raise SizingError(message, attribute="max_num_batched_tokens")
    return stated
