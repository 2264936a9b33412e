"""Forming KV cache groups as vLLM's planner does (`vllm/v1/core/kv_cache_utils.py`).

Layers with the same cache form buckets; buckets are cut into groups of about equal size that share one pool, so that
a block of any group has the same bytes. Under pipeline parallelism the groups are formed over the whole model and
every stage holds its layers of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from enum import Enum, auto
from typing import Final

from reasoningpool.model.errors import SizingError
from reasoningpool.model.integers import ceil_div

_PAD_RATIO: Final = 1.5  # kinds this close in number of layers are padded to one group size


class CacheKind(Enum):
    """How a group's blocks grow with a request."""

    FULL = auto()
    SLIDING = auto()
    STATE = auto()


@dataclass(frozen=True, slots=True)
class Bucket:
    """Layers with the same cache: their places in the model, block size in tokens and page bytes of one layer."""

    kind: CacheKind
    layers: tuple[int, ...]
    block_size: int
    page_bytes: int
    _: KW_ONLY
    paddable: bool = True  # latent attention needs whole token rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One group: layers that share a block table."""

    kind: CacheKind
    layers: tuple[int, ...]
    block_size: int
    page_bytes: tuple[int, ...]  # per layer

    def bytes_per_block(self, stage: range) -> int:
        """Bytes of one block for the layers of a pipeline stage."""
        return sum(page for layer, page in zip(self.layers, self.page_bytes, strict=True) if layer in stage)


def form_groups(buckets: Sequence[Bucket]) -> tuple[Group, ...]:
    """The groups of a model. Raises `SizingError` when the pages cannot be brought to one size."""
    buckets = [bucket for bucket in buckets if bucket.layers]
    uniform = len({(bucket.kind, bucket.block_size) for bucket in buckets}) == 1
    if uniform and (buckets[0].kind is not CacheKind.STATE or len({b.page_bytes for b in buckets}) == 1):
        pages = {layer: bucket.page_bytes for bucket in buckets for layer in bucket.layers}
        order = tuple(sorted(pages))
        return (
            Group(
                kind=buckets[0].kind,
                layers=order,
                block_size=buckets[0].block_size,
                page_bytes=tuple(pages[layer] for layer in order),
            ),
        )
    unified = [_unified(bucket, max(b.page_bytes for b in buckets)) for bucket in buckets]
    size = group_size([len(bucket.layers) for bucket in unified])
    groups = []
    for bucket in unified:
        count = ceil_div(len(bucket.layers), size)
        for first in range(count):
            layers = bucket.layers[first::count]
            groups.append(
                Group(
                    kind=bucket.kind,
                    layers=layers,
                    block_size=bucket.block_size,
                    page_bytes=(bucket.page_bytes,) * len(layers),
                )
            )
    return tuple(groups)


def _unified(bucket: Bucket, page: int) -> Bucket:
    """The bucket with the common page: larger blocks where they divide, else padding."""
    if bucket.page_bytes == page:
        return bucket
    if bucket.kind is CacheKind.STATE:
        return replace(bucket, page_bytes=page)
    if page % bucket.page_bytes == 0:
        return replace(bucket, page_bytes=page, block_size=bucket.block_size * (page // bucket.page_bytes))
    if bucket.paddable:
        return replace(bucket, page_bytes=page)
    message = "the engine cannot bring the latent KV of this model and the other layers' KV to one block size"
    raise SizingError(message, attribute="kv_cache_dtype")


def group_size(counts: Sequence[int]) -> int:
    """Layers per group: the smallest kind's number, or the largest's when that is less than half as many again."""
    smallest, largest = min(counts), max(counts)
    return largest if largest < smallest * _PAD_RATIO else smallest


def pipeline_stages(layers: int, stages: int) -> tuple[range, ...]:
    """The layers of each stage, as vLLM's `get_pp_indices`: the remainder goes to stages before the last.

    61 layers over 4: 15, 15, 16, 15.
    """
    if not 1 <= stages <= layers:
        message = f"{stages} pipeline stages for {layers} layers; write 1 to {layers}"
        raise SizingError(message)
    sizes = [layers // stages] * stages
    for place in range(2, layers % stages + 2):
        sizes[-place] += 1
    starts = [sum(sizes[:stage]) for stage in range(stages)]
    return tuple(range(start, start + size) for start, size in zip(starts, sizes, strict=True))
