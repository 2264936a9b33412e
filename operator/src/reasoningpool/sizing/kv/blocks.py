"""KV blocks: how vLLM cuts the pool, and what a request takes of it.

Layers of one kind form groups of equal size that share one pool; a block holds `block_size` tokens for all
layers of one group. Models with one kind of layer have one group. The null block is never handed out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from reasoningpool.model.errors import SizingError
from reasoningpool.model.geometry import Geometry
from reasoningpool.model.integers import ceil_div
from reasoningpool.model.layers import AttentionShape, LayerKind
from reasoningpool.sizing.constants import BATCHES_IN_FLIGHT
from reasoningpool.sizing.kv.block_size import base_block, kernel_block
from reasoningpool.sizing.kv.grouping import Bucket, CacheKind, Group, form_groups, pipeline_stages
from reasoningpool.sizing.kv.kv_elements import KVElements, head_bytes, is_turboquant, latent_bytes
from reasoningpool.sizing.types import AcceleratorFacts, KVCacheDType

__all__ = ["KVLayout", "ceil_div", "kv_layout"]

_LATENT_HYBRID_BLOCK: Final = 128  # hybrids with latent attention keep blocks at multiples of it
_BOUNDARY_LAYERS: Final = 2  # TurboQuant leaves so many first and last layers of dense models in 16 bit


@dataclass(frozen=True, slots=True, kw_only=True)
class KVLayout:
    """The pool's units on one GPU (under pipeline parallelism: of the fullest stage)."""

    block_size: int  # tokens of a block in a full-attention group (without any: in a sliding one)
    bytes_per_block: int  # all layers of one group
    bytes_per_token: int  # what a further token costs: full-attention layers, without any the sliding ones
    full_groups: int
    sliding_groups: int
    sliding_window: int
    state_groups: int
    state_blocks: int  # per group and request
    batches_in_flight: int
    sliding_block_size: int = 0  # tokens of a block in a sliding group; 0: as `block_size`
    context_parallel: int = 1  # ranks that share a request's tokens (decode context parallelism)
    chunked: bool = False  # sliding groups keep the current chunk instead of the last `sliding_window` tokens
    other_full: tuple[tuple[int, int], ...] = ()  # further full-attention groups (a draft's): block size, groups

    @property
    def sliding_block(self) -> int:
        """Tokens of a block in a sliding group."""
        return self.sliding_block_size or self.block_size

    @property
    def sliding_blocks(self) -> int:
        """Blocks of one sliding group that a long request holds while decoding: `ceil(window / block) + 1`.

        The one more is for a window that begins within a block; chunks begin with one.
        """
        return ceil_div(self.sliding_window, self.sliding_block) + (not self.chunked) if self.sliding_groups else 0

    @property
    def constant_blocks(self) -> int:
        """Blocks of a long request that do not grow with it."""
        return self.sliding_groups * self.sliding_blocks + self.state_groups * self.state_blocks

    def _paged(self, tokens: int) -> int:
        """Blocks of all full-attention groups: each rank keeps its share of the tokens, in whole blocks."""
        local = ceil_div(tokens, self.context_parallel)
        others = sum(groups * ceil_div(local, block) for block, groups in self.other_full)
        return self.full_groups * ceil_div(local, self.block_size) + others

    def request_blocks(self, tokens: int) -> int:
        """Blocks a decoding request of `tokens` holds. gpt-oss-120b at 32,768 tokens: 2,048 + 9."""
        sliding = self.sliding_groups * min(ceil_div(tokens, self.sliding_block), self.sliding_blocks)
        return self._paged(tokens) + sliding + self.state_groups * self.state_blocks

    def planner_blocks(self, tokens: int, batched_tokens: int) -> int:
        """Blocks vLLM's planner reserves for one request of `tokens`, prefill in flight included.

        A sliding group reserves `ceil(min(window - 1 + in_flight, tokens) / block) + 1`, a chunked one
        `ceil(min(window + in_flight, tokens) / block)`.
        gpt-oss-120b, 32,768 tokens, 8,192 batched: 2,048 + 1,033.
        """
        in_flight = self.batches_in_flight * batched_tokens
        one = 0 if self.chunked else 1
        sliding = ceil_div(min(self.sliding_window - one + in_flight, tokens), self.sliding_block) + one
        return self._paged(tokens) + self.sliding_groups * sliding + self.state_groups * self.state_blocks

    def transient_blocks(self, tokens_in_prefill: int, batched_tokens: int) -> int:
        """Blocks that prefills in flight hold beyond the steady ones, over all requests together."""
        if not self.sliding_groups:
            return 0
        in_flight = min(self.batches_in_flight * batched_tokens, tokens_in_prefill)
        return self.sliding_groups * ceil_div(in_flight, self.sliding_block)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pages:
    """Bytes a model's layers keep per token, and the places of the layers."""

    geometry: Geometry
    accelerator: AcceleratorFacts
    dtype: KVElements
    ranks: int
    first_layer: int = 0

    def _heads(self, shape: AttentionShape, dtype: KVElements) -> int:
        return max(1, shape.kv_heads // self.ranks) * head_bytes(dtype, shape)

    def places(self, *kinds: LayerKind) -> tuple[int, ...]:
        return tuple(self.first_layer + i for i, kind in enumerate(self.geometry.layer_kinds) if kind in kinds)

    @property
    def full_places(self) -> tuple[int, ...]:
        return self.places(LayerKind.FULL, LayerKind.FULL_AND_STATE)

    def full_token(self) -> int:
        """Bytes of a token in one full-attention layer."""
        g = self.geometry
        if g.latent_dim is not None:
            sparse = bool(g.indexer_bytes)
            own = latent_bytes(self.dtype, g.latent_dim, sparse=sparse, capability=self.accelerator.compute_capability)
            return own + g.indexer_bytes
        return self._heads(g.full, self.dtype)

    def outer_token(self) -> int:
        """The same in the outer layers that TurboQuant leaves in 16 bit."""
        return self._heads(self.geometry.full, KVCacheDType.BF16)

    def sliding_token(self) -> int:
        return self._heads(self.geometry.sliding, self.dtype)

    def outer_places(self) -> tuple[int, ...]:
        if not is_turboquant(self.dtype) or self.geometry.is_hybrid:
            return ()
        layers = self.geometry.num_layers
        outer = min(_BOUNDARY_LAYERS, layers // 2)
        chosen = {*range(outer), *range(layers - outer, layers)}
        return tuple(place for place in self.full_places if place - self.first_layer in chosen)

    def buckets(self, block: int, *, hybrid_manager: bool) -> list[Bucket]:
        """Attention layers by cache; without the hybrid manager sliding layers keep every token too."""
        latent = self.geometry.is_latent
        outer = self.outer_places()
        inner = tuple(place for place in self.full_places if place not in outer)
        sliding = CacheKind.SLIDING if hybrid_manager else CacheKind.FULL
        found = [
            Bucket(CacheKind.FULL, inner, block, block * self.full_token(), paddable=not latent),
            Bucket(CacheKind.FULL, outer, block, block * self.outer_token() if outer else 0),
            Bucket(sliding, self.places(LayerKind.SLIDING), block, block * self.sliding_token()),
        ]
        return [bucket for bucket in found if bucket.layers]


def kv_layout(
    geometry: Geometry,
    accelerator: AcceleratorFacts,
    *,
    tensor_parallel: int,
    dtype: KVElements,
    block_size: int | None,
    draft_layers: int = 0,
    speculative_tokens: int = 0,
    prefix_caching: bool = True,
    pipeline_parallel: int = 1,
    context_parallel: int = 1,
    hybrid_manager: bool = True,
    draft: Geometry | None = None,
) -> KVLayout:
    """The groups and blocks vLLM forms for this model on this accelerator.

    `draft_layers` are layers like the model's own full-attention ones (MTP); `draft` is a draft model or an EAGLE head
    with layers of its own, sharded as the model is. `context_parallel` is decode context parallelism. Without the
    `hybrid_manager` sliding-window layers keep every token; models with a fixed state cannot be run so.

    Raises `SizingError` for combinations that the engine refuses.
    """
    _check(geometry, tensor_parallel, context_parallel, hybrid_manager=hybrid_manager)
    pages = _Pages(geometry=geometry, accelerator=accelerator, dtype=dtype, ranks=tensor_parallel)
    block = _attention_block(pages, block_size, speculative_tokens)
    buckets = _merged(
        [
            *pages.buckets(block, hybrid_manager=hybrid_manager),
            *_draft_buckets(pages, draft, draft_layers, block, hybrid_manager=hybrid_manager),
            *_state_buckets(pages, block),
        ]
    )
    groups = form_groups(buckets)
    total = geometry.num_layers + draft_layers + (draft.num_layers if draft is not None else 0)
    stages = pipeline_stages(geometry.num_layers, pipeline_parallel)
    stages = (*stages[:-1], range(stages[-1].start, total))  # drafts are on the last stage
    full = [group for group in groups if group.kind is CacheKind.FULL]
    own = (full or groups)[0].block_size
    sliding = [group for group in groups if group.kind is CacheKind.SLIDING]
    is_cpu = accelerator.memory_bytes is None
    others: dict[int, int] = {}
    for group in full:
        if group.block_size != own:
            others[group.block_size] = others.get(group.block_size, 0) + 1
    return KVLayout(
        block_size=own,
        bytes_per_block=max(group.bytes_per_block(stage) for group in groups for stage in stages),
        bytes_per_token=_token_bytes(full or sliding, stages),
        full_groups=sum(group.block_size == own for group in full),
        sliding_groups=len(sliding),
        sliding_window=geometry.sliding_window or 0 if sliding else 0,
        sliding_block_size=sliding[0].block_size if sliding else 0,
        state_groups=sum(group.kind is CacheKind.STATE for group in groups),
        state_blocks=_state_blocks(geometry, speculative_tokens, prefix_caching=prefix_caching),
        # The pipeline is kept full by one batch per stage, asynchronous scheduling adds one.
        batches_in_flight=pipeline_parallel + (0 if is_cpu else BATCHES_IN_FLIGHT - 1),
        context_parallel=context_parallel,
        chunked=geometry.chunked and bool(sliding),
        other_full=tuple(others.items()),
    )


def _state_blocks(geometry: Geometry, speculative_tokens: int, *, prefix_caching: bool) -> int:
    """Blocks of one state group that a request holds (`MambaSpec.max_memory_usage_bytes`)."""
    if geometry.state is None:
        return 0
    return (2 + geometry.state.checkpoint_blocks if prefix_caching else 1) + speculative_tokens


def _token_bytes(full: list[Group], stages: tuple[range, ...]) -> int:
    """Bytes that a further token costs on the fullest stage, padding of its pages included."""
    return max(sum(group.bytes_per_block(stage) // group.block_size for group in full) for stage in stages)


def _check(geometry: Geometry, ranks: int, context_parallel: int, *, hybrid_manager: bool) -> None:
    """What vLLM refuses (`config/model.py`, `verify_with_parallel_config`)."""
    if context_parallel < 1 or ranks % context_parallel:
        message = f"decode context parallelism {context_parallel} does not divide the {ranks} tensor-parallel ranks"
        raise SizingError(message)
    if context_parallel > 1 and geometry.sliding_layers:
        message = "sliding-window layers cannot share tokens between ranks; set decode context parallelism to 1"
        raise SizingError(message)
    most = ranks // geometry.kv_heads
    per_head = geometry.num_attention_heads // geometry.kv_heads
    if context_parallel > 1 and not geometry.is_latent and (context_parallel > most or per_head % context_parallel):
        message = (
            f"decode context parallelism {context_parallel} needs ranks that repeat KV heads: at most "
            f"{max(1, most)} for {ranks} ranks and {geometry.kv_heads} KV heads, dividing {per_head} queries a KV head"
        )
        raise SizingError(message)
    if not hybrid_manager and geometry.is_hybrid:
        message = "models with a fixed state per request need the hybrid KV cache manager"
        raise SizingError(message)


def _attention_block(pages: _Pages, stated: int | None, speculative_tokens: int) -> int:
    """Tokens per block: the backend's, enlarged until a page holds a layer's fixed state or a 16-bit outer layer."""
    geometry, accelerator = pages.geometry, pages.accelerator
    block = base_block(geometry, accelerator, pages.dtype, stated)
    step = max(kernel_block(geometry, accelerator), block)
    if geometry.state is not None:
        if geometry.is_latent:
            step = max(step, _LATENT_HYBRID_BLOCK)
        state = geometry.state.bytes_per_layer(
            pages.ranks, speculative_tokens=speculative_tokens, cpu=accelerator.memory_bytes is None
        )
        block = max(block, step * ceil_div(state, step * pages.full_token()))
    if pages.outer_places():
        kernel = kernel_block(geometry, accelerator)
        block = max(block, step * ceil_div(pages.outer_token() * kernel, step * pages.full_token()))
    return block


def _draft_buckets(
    pages: _Pages, draft: Geometry | None, layers: int, block: int, *, hybrid_manager: bool
) -> list[Bucket]:
    first = pages.geometry.num_layers
    found = []
    if layers:
        own = Bucket(CacheKind.FULL, tuple(range(first, first + layers)), block, block * pages.full_token())
        found.append(replace(own, paddable=not pages.geometry.is_latent))
    if draft is not None:
        found += replace(pages, geometry=draft, first_layer=first + layers).buckets(
            block, hybrid_manager=hybrid_manager
        )
    return found


def _state_buckets(pages: _Pages, block: int) -> list[Bucket]:
    """State layers, their page padded to that of attention."""
    places = pages.places(LayerKind.STATE, LayerKind.FULL_AND_STATE)
    return [Bucket(CacheKind.STATE, places, block, block * pages.full_token())] if places else []


def _merged(buckets: list[Bucket]) -> list[Bucket]:
    """Buckets with the same cache as one, in order of first appearance."""
    found: list[Bucket] = []
    for bucket in buckets:
        same = replace(bucket, layers=())
        for place, other in enumerate(found):
            if replace(other, layers=()) == same:
                found[place] = replace(other, layers=(*other.layers, *bucket.layers))
                break
        else:
            found.append(bucket)
    return found
