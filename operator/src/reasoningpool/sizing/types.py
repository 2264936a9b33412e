"""What the calculation takes and what it answers.

Plain frozen values: no Kubernetes, no catalog lookups, no clock. All sizes are bytes or tokens, all
times are seconds unless the name says otherwise. Whoever calls `plan` has already merged overrides,
looked up the catalog and parsed quantities (see `reasoningpool.resolution`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reasoningpool.model.errors import SizingAttribute
    from reasoningpool.model.geometry import Geometry
    from reasoningpool.sizing.observed import ObservedTokens


EngineVersion = tuple[int, int, int]  # vLLM's, such as (0, 33, 0)


class KVCacheDType(StrEnum):
    """KV cache element types, in the spelling of the resource."""

    AUTO = "Auto"
    BF16 = "BF16"
    FP16 = "FP16"
    FP8 = "FP8"
    FP8_E5M2 = "FP8E5M2"


class ConcurrencyPolicy(StrEnum):
    """How `max_num_seqs` is derived (docs/sizing-concurrency.md)."""

    WORST_CASE = "WorstCase"
    STATISTICAL = "Statistical"


class Limit(StrEnum):
    """What bound the number of sequences, closed list shown as `limitedBy`."""

    KV_CACHE = "KVCache"
    STATE_SLOTS = "StateSlots"
    TIME_PER_OUTPUT_TOKEN = "TimePerOutputToken"  # noqa: S105 (no password)
    ENGINE_CAP = "EngineCap"
    EXPLICIT = "Explicit"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorFacts:
    """One accelerator as the engine sees it.

    `memory_bytes` is the device's real byte count (what the driver reports), not its product name's;
    `None` for the CPU accelerator, whose KV pool must be stated.
    """

    product: str
    memory_bytes: int | None
    compute_capability: tuple[int, int] | None
    memory_bandwidth_bytes_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenQuantiles:
    """Observed 50th, 90th and 99th percentile of a token count."""

    p50: int
    p90: int
    p99: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Budgets of one effort in tokens; `share` is its weight in the mix (any positive scale).

    `observed` (the requests of a log) replaces both distributions.
    """

    name: str
    prompt_tokens: int
    thinking_tokens: int
    answer_tokens: int
    share: float
    prompt_distribution: TokenQuantiles | None = None
    output_distribution: TokenQuantiles | None = None
    observed: ObservedTokens | None = None

    @property
    def output_tokens(self) -> int:
        """Thinking and answer together, the most a request of this effort generates."""
        return self.thinking_tokens + self.answer_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingInput:
    """Everything `plan` looks at.

    `kv_cache_memory_bytes` replaces the memory model when given. `weight_bytes` is the checkpoint's
    size over all GPUs of a replica, `None` to estimate it from the geometry. The `max_*` values are the
    user's explicit ones; they win, with a warning where they exceed what was derived. `measured_num_blocks`
    and `measured_block_size` are the KV pool a running engine reported, both or neither: a pool smaller than
    the model's takes its place, a larger one changes nothing.
    """

    accelerator: AcceleratorFacts
    tensor_parallel_size: int
    geometry: Geometry
    weight_bytes: int | None
    kv_cache_dtype: KVCacheDType
    memory_utilization_permille: int
    kv_cache_memory_bytes: int | None
    efforts: tuple[Effort, ...]
    policy: ConcurrencyPolicy
    preemption_risk_permille: int
    shared_prefix_tokens: int = 0
    template_overhead_tokens: int = 0
    speculative_tokens: int = 0
    speculative_draft_layers: int = 0
    draft_weight_bytes: int = 0  # weights of draft or MTP layers over all GPUs, beside `weight_bytes`
    vision_weight_bytes: int = 0  # weights of a vision tower over all GPUs, beside `weight_bytes`
    engine_version: EngineVersion | None = None  # vLLM's; `None`: the newest the project knows
    max_num_seqs: int | None = None
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    prefix_caching: bool = True
    expert_parallel: bool = False  # experts are spread over the GPUs whole, not cut
    enforce_eager: bool = False
    time_per_output_token_ms: int | None = None
    load_bandwidth_bytes_per_s: int | None = None
    pre_stop_seconds: int = 0
    measured_num_blocks: int | None = None
    measured_block_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of the calculation in words: what, the figure with its unit, and how it came about."""

    name: str
    value: str
    formula: str


@dataclass(frozen=True, slots=True)
class SizingWarning:
    """What a user should know though the plan stands, and the input that it is about."""

    attribute: SizingAttribute
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingPlan:
    """The derived limits with every intermediate number (bytes are per GPU unless named otherwise)."""

    # memory
    kv_bytes_per_token: int
    per_request_constant_bytes: int
    weight_bytes_per_gpu: int
    activation_bytes: int
    graph_bytes: int
    overhead_bytes: int
    reserve_bytes: int  # safety margin of the memory model
    kv_pool_bytes: int
    # blocks
    block_size: int
    bytes_per_block: int
    num_blocks: int
    usable_kv_tokens: int
    # concurrency
    footprint_tokens: int  # largest effort, in whole blocks
    mean_resident_tokens: int
    worst_case_num_seqs: int
    max_num_seqs: int
    limited_by: Limit
    preempted_share_permille: int  # expected at max_num_seqs
    # engine arguments
    max_model_len: int
    max_num_batched_tokens: int
    kv_cache_dtype: KVCacheDType  # never Auto
    tensor_parallel_size: int
    # time
    time_per_output_token_ms: float
    shutdown_timeout_seconds: int
    pre_stop_seconds: int
    termination_grace_period_seconds: int
    startup_budget_seconds: int
    # words
    steps: tuple[Step, ...]
    warnings: tuple[SizingWarning, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the inputs that fits, in words and as the changed inputs."""

    text: str
    inputs: SizingInput


class FitUnit(StrEnum):
    """What is short: memory of a GPU, or the tokens that the model's native context has."""

    BYTES = "bytes"
    TOKENS = "tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoesNotFit:
    """The budgets cannot be served: by how much, and the nearest change that would fit."""

    what: str  # e.g. "the KV cache cannot hold one request of effort 'high'"
    unit: FitUnit  # of the three figures; bytes are of one GPU
    needed: int
    available: int
    suggestions: tuple[str, ...]  # nearest change first; says so when nothing on this product fits
    steps: tuple[Step, ...]
    warnings: tuple[SizingWarning, ...]
    changes: tuple[Change, ...] = ()  # what the suggestions say, as inputs; empty when nothing fits

    @property
    def missing(self) -> int:
        """Needed minus available."""
        return self.needed - self.available
