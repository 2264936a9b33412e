"""The memory model: what is left for KV on one GPU after everything else.

    pool = ceil(total * utilization) - weights - overhead - activation - graphs - reserve

Activation and graphs depend on `max_num_seqs`, which is what is being derived; `plan` solves for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from reasoningpool.sizing import constants as c
from reasoningpool.sizing.blocks import ceil_div
from reasoningpool.sizing.geometry import Geometry
from reasoningpool.sizing.types import SizingInput

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
    def beside_kv(self) -> int:
        """All that is not KV."""
        return self.weights + self.overhead + self.activation + self.graphs + self.reserve


def weight_bytes_per_gpu(geometry: Geometry, weight_bytes: int | None, tensor_parallel: int) -> int:
    """Weights on one rank; a stated checkpoint size scales the estimate, keeping what is whole on every rank whole."""
    estimate = geometry.weights.bytes_per_gpu(geometry.weight_format, tensor_parallel)
    if weight_bytes is None:
        return estimate
    total = geometry.weights.bytes_total(geometry.weight_format)
    return round(weight_bytes * (estimate / total))


def sampler_bytes(vocab_size: int, sequences: int) -> int:
    """Peak of the sampler: `10 * sequences * vocabulary * 4 bytes`. Qwen3 (151,936) at 1,024: 5.8 GiB."""
    return round(c.SAMPLER_BYTES_FACTOR.value * sequences * vocab_size * _LOGIT_BYTES)


def activation_bytes(geometry: Geometry, *, tensor_parallel: int, batched_tokens: int, sequences: int) -> int:
    """Peak of one step: the widest layer of a full prefill batch, or the sampler after it, whichever is more.

    forward `tokens * 2 * (8 * hidden + 3 * width / tp + experts_per_token * hidden)`, sampler on top of the
    batch's hidden states.
    """
    hidden = geometry.hidden_size
    width = ceil_div(geometry.intermediate_size, tensor_parallel)
    columns = c.FORWARD_HIDDEN_COPIES.value * hidden + c.FORWARD_INNER_COPIES.value * width
    columns += geometry.weights.experts_per_token * hidden
    forward = round(batched_tokens * _ACTIVATION_BYTES * columns)
    kept = batched_tokens * hidden * _ACTIVATION_BYTES
    return max(forward, kept + sampler_bytes(geometry.vocab_size, min(sequences, batched_tokens)))


def captured_sizes(sequences: int) -> int:
    """Number of batch sizes vLLM captures graphs for: 1, 2, 4, then by 8 to 256, by 16 to `min(2 * seqs, 512)`."""
    largest = min(2 * sequences, c.MAX_CAPTURED_SIZE)
    small = sum(1 for size in (1, 2, 4) if size <= largest)
    return small + min(largest, 256) // 8 + max(0, largest - 256) // 16


def graph_bytes(geometry: Geometry, *, sequences: int, enforce_eager: bool) -> int:
    """CUDA graph memory; none in eager mode."""
    if enforce_eager:
        return 0
    per_size = c.GRAPH_BYTES_PER_LAYER_AND_SIZE.value * geometry.num_layers
    return round(c.GRAPH_BYTES_FIXED.value + per_size * captured_sizes(sequences))


def overhead_bytes(tensor_parallel: int) -> int:
    """Non-torch memory: libraries, and communication buffers with more than one GPU."""
    if tensor_parallel == 1:
        return round(c.NON_TORCH_BYTES.value)
    communication = c.COMMUNICATION_BYTES.value + c.COMMUNICATION_BYTES_PER_RANK.value * tensor_parallel
    return round(c.NON_TORCH_BYTES.value + communication)


def requested_bytes(memory_bytes: int, utilization_permille: int) -> int:
    """What the engine asks for: `ceil(total * utilization)`."""
    return ceil_div(memory_bytes * utilization_permille, 1000)


def free_bytes(memory_bytes: int) -> int:
    """What is free when the engine starts: the driver's context is already there."""
    return max(0, memory_bytes - round(c.DRIVER_BYTES.value))


def memory_shares(inputs: SizingInput, *, batched_tokens: int, sequences: int) -> MemoryShares:
    """Solve the memory equation for given limits. Never more pool with more sequences."""
    geometry, ranks = inputs.geometry, inputs.tensor_parallel_size
    total = inputs.accelerator.memory_bytes
    weights = weight_bytes_per_gpu(geometry, inputs.weight_bytes, ranks) + ceil_div(inputs.draft_weight_bytes, ranks)
    if total is None:  # CPU: the pool is stated and nothing else is modelled
        pool = inputs.kv_cache_memory_bytes or 0
        return MemoryShares(requested=pool, weights=weights, overhead=0, activation=0, graphs=0, reserve=0, pool=pool)
    activation = activation_bytes(geometry, tensor_parallel=ranks, batched_tokens=batched_tokens, sequences=sequences)
    graphs = graph_bytes(geometry, sequences=sequences, enforce_eager=inputs.enforce_eager)
    overhead = overhead_bytes(ranks)
    floor = round(c.OVERHEAD_FLOOR_BYTES.value + c.OVERHEAD_PER_WEIGHT.value * weights)
    margin = round(c.SAFETY_SHARE.value * total)
    reserve = max(margin, floor - activation - graphs - overhead)
    beside = weights + activation + graphs + overhead + reserve
    requested = requested_bytes(total, inputs.memory_utilization_permille)
    stated = inputs.kv_cache_memory_bytes
    return MemoryShares(
        requested=requested,
        weights=weights,
        overhead=overhead,
        activation=activation,
        graphs=graphs,
        reserve=reserve,
        pool=requested - beside if stated is None else stated,
    )
