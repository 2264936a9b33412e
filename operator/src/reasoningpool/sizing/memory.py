"""The memory model: what is left for KV on one GPU after everything else.

    pool = ceil(total * utilization) - weights - overhead - activation - graphs - reserve

Every part but the reserve is the likeliest figure. The reserve is the distance to the safe end: the parts err
independently of each other, so their distances add as the root of the sum of squares, and with them what is kept back
where few start-ups are like this one (`evidence`). `pool` is what the plan may
promise. Activation and graphs depend on `max_num_seqs`, which is what is being derived; `plan` solves for it. The
parts follow what the engine measures before it cuts its pool (vLLM's `determine_available_memory` and
`profile_run`): the rise of memory in use, the peak of one step with dummy inputs, and since 0.21 an estimate of its
CUDA graphs. Method, calibration and accuracy: docs/sizing.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, hypot
from typing import Final

from reasoningpool.model.geometry import Geometry
from reasoningpool.model.weights import WeightCounts, WeightFormat
from reasoningpool.sizing import constants as c
from reasoningpool.sizing.evidence import WITHOUT_NVLINK, Evidence, evidence
from reasoningpool.sizing.kv.blocks import ceil_div
from reasoningpool.sizing.types import EngineVersion, SizingInput

_LOGIT_BYTES = 4
_ACTIVATION_BYTES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryShares:
    """Bytes of one GPU by use. `pool` may be negative here: it says by how much memory is short."""

    requested: int
    weights: int
    overhead: int
    activation: int
    graphs: int
    reserve: int
    pool: int

    @property
    def central_pool(self) -> int:
        """The likeliest pool, without the reserve."""
        return self.pool + self.reserve

    @property
    def beside_kv(self) -> int:
        """All that is not KV."""
        return self.weights + self.overhead + self.activation + self.graphs + self.reserve


@lru_cache(maxsize=256)
def _estimate(weights: WeightCounts, fmt: WeightFormat, tensor_parallel: int) -> int:
    """Asked for at every number of sequences that is tried, with the same answer."""
    return weights.bytes_per_gpu(fmt, tensor_parallel)


def weight_bytes_per_gpu(geometry: Geometry, weight_bytes: int | None, tensor_parallel: int) -> int:
    """Weights on one rank; a stated checkpoint size scales the estimate, keeping what is whole on every rank whole."""
    estimate = _estimate(geometry.weights, geometry.weight_format, tensor_parallel)
    if weight_bytes is None:
        return estimate
    return round(weight_bytes * (estimate / geometry.weights.bytes_total(geometry.weight_format)))


_FOUR_BITS: Final = (WeightFormat.INT4, WeightFormat.BNB4, WeightFormat.NVFP4)
_DATA_CENTER_BLACKWELL: Final = 10


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes: the likeliest figure and the safe end (never less)."""

    central: int
    safe: int

    def __add__(self, other: Range) -> Range:
        return Range(self.central + other.central, self.safe + other.safe)

    def most(self, other: Range) -> Range:
        """The larger of both, end by end."""
        return Range(max(self.central, other.central), max(self.safe, other.safe))


NOTHING: Final = Range(0, 0)


def _times(constant: c.Constant, amount: float) -> Range:
    return Range(round(constant.central * amount), round(constant.value * amount))


def _is_before(version: EngineVersion | None, first: EngineVersion) -> bool:
    """Whether the engine is older than `first`; an unknown version is the newest."""
    return version is not None and version < first


def _second_runner(geometry: Geometry) -> EngineVersion:
    """The first release that runs the model on Model Runner V2."""
    mixed = geometry.weights.experts_total or geometry.is_hybrid
    return c.FIRST_SECOND_RUNNER_ALL if mixed else c.FIRST_SECOND_RUNNER


def sampler_bytes(geometry: Geometry, sequences: int, version: EngineVersion | None = None) -> Range:
    """Peak of the sampler in the profile run, which samples for `sequences` requests at once.

    A multiple of `sequences * vocabulary * 4 bytes`. Qwen3 (151,936) at 1,024: 5.5 GiB before 0.17, where the
    vocabulary was sorted; 0.3 GiB on Model Runner V2.
    """
    if _is_before(version, c.FIRST_WITHOUT_SORT):
        factor = c.SAMPLER_SORT
    elif _is_before(version, _second_runner(geometry)):
        factor = c.SAMPLER_KERNEL
    else:
        factor = c.SAMPLER_SECOND_RUNNER
    return _times(factor, sequences * geometry.vocab_size * _LOGIT_BYTES)


def forward_bytes(geometry: Geometry, *, tensor_parallel: int, batched_tokens: int, compiled: bool) -> Range:
    """Peak of the widest layer in a full prefill batch.

    Dense `tokens * 2 * (3 * width / tp + hidden)`. Routed experts work on a copy of each token for every chosen
    expert (`expert_bytes`).
    """
    hidden = geometry.hidden_size
    copies = c.FORWARD_HIDDEN_COPIES if compiled else c.FORWARD_HIDDEN_COPIES_EAGER
    width = ceil_div(geometry.intermediate_size, tensor_parallel)
    columns = c.FORWARD_INNER_COPIES.value * width
    rows = batched_tokens * _ACTIVATION_BYTES
    inner = max(round(rows * columns), expert_bytes(geometry, tensor_parallel, batched_tokens))
    return _times(copies, rows * hidden) + Range(inner, inner)


def expert_bytes(geometry: Geometry, tensor_parallel: int, batched_tokens: int) -> int:
    """Buffers of routed experts, 0 without: `tokens * 2 * (k * max(2 * width / tp, hidden) + k * width / tp)`."""
    counts = geometry.weights
    if not counts.experts_total:
        return 0
    width = ceil_div(geometry.intermediate_size, tensor_parallel)  # that of all chosen experts together
    columns = max(2 * width, counts.experts_per_token * geometry.hidden_size) + width
    return batched_tokens * _ACTIVATION_BYTES * columns


def activation_bytes(
    geometry: Geometry,
    *,
    tensor_parallel: int,
    batched_tokens: int,
    sequences: int,
    version: EngineVersion | None = None,
    enforce_eager: bool = False,
) -> Range:
    """Peak of one step: the widest layer of a full prefill batch, or the sampler after it, whichever is more.

    The batch's hidden states are still there when the sampler runs, and since 0.13 the experts' buffers too.
    """
    compiled = not (enforce_eager or _is_before(version, c.FIRST_COMPILED))
    forward = forward_bytes(geometry, tensor_parallel=tensor_parallel, batched_tokens=batched_tokens, compiled=compiled)
    kept = batched_tokens * geometry.hidden_size * _ACTIVATION_BYTES
    if not _is_before(version, c.FIRST_EXPERT_WORKSPACE):
        kept += expert_bytes(geometry, tensor_parallel, batched_tokens)
    sampling = sampler_bytes(geometry, min(sequences, batched_tokens), version) + Range(kept, kept)
    return forward.most(sampling)


def encoder_bytes(geometry: Geometry, batched_tokens: int) -> tuple[Range, int]:
    """Peak of the profile run's images, and what it keeps of them for the language model's turn.

    The engine encodes as many of the largest image as a batch or the largest image itself holds tokens
    (`profile_run`), one after the other, and keeps their embeddings.
    """
    if not geometry.image_tokens:
        return NOTHING, 0
    budget = max(batched_tokens, geometry.image_tokens)
    kept = budget // geometry.image_tokens * geometry.image_tokens * geometry.hidden_size * _ACTIVATION_BYTES
    one = geometry.image_tokens * geometry.image_peak_bytes
    return _times(c.ENCODER_COPIES, one) + Range(kept, kept), kept


def captured_sizes(sequences: int, compute_capability: tuple[int, int] | None = None) -> int:
    """Number of batch sizes vLLM captures graphs for: 1, 2, 4, then by 8 to 256, by 16 to the largest.

    The largest is `min(2 * sequences, 512)`, on data-center Blackwell `min(2 * sequences, 1024)`.
    """
    blackwell = compute_capability is not None and compute_capability[0] == _DATA_CENTER_BLACKWELL
    largest = min(2 * sequences, c.MAX_CAPTURED_SIZE * (2 if blackwell else 1))
    small = sum(1 for size in (1, 2, 4) if size <= largest)
    return small + min(largest, 256) // 8 + max(0, largest - 256) // 16


def graph_bytes(
    geometry: Geometry,
    *,
    sequences: int,
    enforce_eager: bool,
    compute_capability: tuple[int, int] | None = None,
    version: EngineVersion | None = None,
) -> Range:
    """CUDA graph memory that the engine sets aside: its estimate; none in eager mode.

    Before 0.21 graphs were captured outside of the engine's share and took nothing from the pool; Model Runner V2
    made no estimate before 0.28.
    """
    if enforce_eager or _is_before(version, c.FIRST_GRAPHS_COUNTED):
        return NOTHING
    second = version is not None and version >= _second_runner(geometry)
    if second and _is_before(version, c.FIRST_SECOND_RUNNER_GRAPHS):
        return NOTHING
    sizes = captured_sizes(sequences, compute_capability)
    return _times(c.GRAPH_BYTES_PER_LAYER_AND_SIZE, geometry.num_layers * sizes)


def overhead_bytes(
    tensor_parallel: int, compute_capability: tuple[int, int] | None = None, version: EngineVersion | None = None
) -> Range:
    """Non-torch memory: libraries, and communication buffers with more than one GPU."""
    alone = _times(c.NON_TORCH_BYTES, 1)
    if tensor_parallel == 1:
        return alone
    if compute_capability in WITHOUT_NVLINK:
        return alone + _times(c.COMMUNICATION_BYTES_PCIE, 1)
    joined = alone + _times(c.COMMUNICATION_BYTES, 1)
    return joined + _times(c.COMMUNICATOR_BYTES, 1) if _is_before(version, c.FIRST_SNAPSHOT_AFTER_NCCL) else joined


def requested_bytes(memory_bytes: int, utilization_permille: int) -> int:
    """What the engine asks for: `ceil(total * utilization)`."""
    return ceil_div(memory_bytes * utilization_permille, 1000)


def free_bytes(memory_bytes: int) -> int:
    """What is free when the engine starts: the driver's context is already there."""
    return max(0, memory_bytes - round(c.DRIVER_BYTES.value))


def evidence_of(inputs: SizingInput) -> Evidence:
    """The start-ups that stand behind these inputs' memory figures."""
    version = inputs.engine_version
    return evidence(
        inputs.geometry,
        inputs.accelerator,
        ranks=inputs.tensor_parallel_size,
        version=version,
        second_runner=not _is_before(version, _second_runner(inputs.geometry)),
        towers=bool(inputs.vision_weight_bytes),
    )


def memory_shares(inputs: SizingInput, *, batched_tokens: int, sequences: int) -> MemoryShares:
    """Solve the memory equation for given limits. Never more pool with more sequences."""
    geometry, ranks, version = inputs.geometry, inputs.tensor_parallel_size, inputs.engine_version
    total = inputs.accelerator.memory_bytes
    beside = ceil_div(inputs.draft_weight_bytes + inputs.vision_weight_bytes, ranks)
    weights = weight_bytes_per_gpu(geometry, inputs.weight_bytes, ranks) + beside
    if total is None:  # CPU: the pool is stated and nothing else is modelled
        pool = inputs.kv_cache_memory_bytes or 0
        return MemoryShares(requested=pool, weights=weights, overhead=0, activation=0, graphs=0, reserve=0, pool=pool)
    activation = activation_bytes(
        geometry,
        tensor_parallel=ranks,
        batched_tokens=batched_tokens,
        sequences=sequences,
        version=version,
        enforce_eager=inputs.enforce_eager,
    )
    capability = inputs.accelerator.compute_capability
    graphs = graph_bytes(
        geometry,
        sequences=sequences,
        enforce_eager=inputs.enforce_eager,
        compute_capability=capability,
        version=version,
    )
    overhead = overhead_bytes(ranks, capability, version)
    device = _times(c.DEVICE_SHARE, total)
    spread = _times(c.WEIGHT_SHARE_4BIT if geometry.weight_format in _FOUR_BITS else c.WEIGHT_SHARE, weights)
    if inputs.vision_weight_bytes:
        images, kept = encoder_bytes(geometry, batched_tokens)
        activation = images.most(activation + Range(kept, kept))
    newer = NOTHING if _is_before(version, c.FIRST_GRAPHS_COUNTED) else _times(c.NEWER_ENGINE_BYTES, 1)
    parts = (activation, graphs, overhead, device, spread, newer)
    scarce = (share * total for share in evidence_of(inputs).wider_shares)
    reserve = ceil(hypot(*(part.safe - part.central for part in parts), *scarce))
    requested = requested_bytes(total, inputs.memory_utilization_permille)
    stated = inputs.kv_cache_memory_bytes
    return MemoryShares(
        requested=requested,
        weights=weights,
        overhead=overhead.central,
        activation=activation.central,
        graphs=graphs.central,
        reserve=reserve,
        pool=requested - weights - overhead.central - activation.central - graphs.central - reserve
        if stated is None
        else stated,
    )
