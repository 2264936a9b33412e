"""The values that admission takes and gives. Token counts are per output unless said otherwise; times are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """How a request ended. Only of a completed one is the length known; the others were at least as long."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


class Reason(StrEnum):
    """Why a request is not admitted."""

    TOO_LARGE = "too_large"  # not even alone in the pool
    QUEUE_FULL = "queue_full"
    QUEUE_TOKENS = "queue_tokens"
    WAIT_TIMEOUT = "wait_timeout"
    DRAINING = "draining"


class Rejected(Exception):  # noqa: N818 - the outcome of an admission, not a fault
    """The request is not admitted. `retry_after_seconds` is None where trying again cannot help."""

    def __init__(self, reason: Reason, retry_after_seconds: int | None) -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The engine's KV pool, as it reports it once it is ready (`vllm:cache_config_info`).

    `blocks` is `num_gpu_blocks - 1`: one is the null block. `blocks_per_sequence` is what every sequence holds whatever
    its length (sliding windows, states of linear attention).
    """

    blocks: int
    block_tokens: int
    blocks_per_sequence: int = 0
    max_sequences: int | None = None  # the engine's max_num_seqs

    def __post_init__(self) -> None:
        if self.blocks < 1 or self.block_tokens < 1 or self.blocks_per_sequence < 0:
            raise ValueError(f"no KV pool: {self}")
        if self.max_sequences is not None and self.max_sequences < 1:
            raise ValueError(f"max_sequences is {self.max_sequences}; at least 1 is needed")

    @property
    def tokens(self) -> int:
        """What the pool holds, where no sequence has constant blocks."""
        return self.blocks * self.block_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRequest:
    """A request as it is known before it runs.

    `priority`: lower is earlier, as in vLLM. `prefix` names a prompt prefix of `prefix_tokens` that running requests
    with the same name share in the prefix cache (a tenant's system prompt, the turns before this one).
    """

    effort: str
    prompt_tokens: int
    max_output_tokens: int
    outputs: int = 1
    priority: int = 0
    streamed: bool = True
    prefix: str | None = None
    prefix_tokens: int = 0

    def __post_init__(self) -> None:
        if self.prompt_tokens < 0 or self.max_output_tokens < 1 or self.outputs < 1:
            raise ValueError(f"not a request: {self}")
        if not 0 <= self.prefix_tokens <= self.prompt_tokens:
            raise ValueError(f"a prefix of {self.prefix_tokens} tokens in a prompt of {self.prompt_tokens}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionConfig:
    """What may change while the server runs.

    `expected_output_tokens` gives, per effort, equally likely output lengths that stand in for history until there is
    some; an effort without any is taken to use its whole cap.
    """

    expected_output_tokens: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    preempted_share: float = 0.005  # aimed at, preemptions per finished output
    enabled: bool = True  # off: everything is admitted at once, and counted
    max_running: int | None = None  # requests, beside the forecast
    max_queued_requests: int = 256
    max_queued_tokens: int = 4_000_000  # prompt tokens
    max_wait_seconds: float = 30.0
    priorities: int = 3
    aging_seconds: float = 10.0  # a waiting request rises by one priority per so much

    def __post_init__(self) -> None:
        if not 0 < self.preempted_share < 1:
            raise ValueError(f"preempted_share is {self.preempted_share}; it must lie between 0 and 1")
        if self.priorities < 1 or self.max_queued_requests < 0 or self.max_queued_tokens < 0:
            raise ValueError(f"not a queue: {self}")
        if self.max_wait_seconds < 0 or self.aging_seconds <= 0:
            raise ValueError(f"waits must be positive: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state for metrics. Tokens are those of whole blocks.

    `committed_tokens` is what the running requests hold at the most, up to their caps; `forecast_tokens` is the
    expected peak of what they will hold together; `resident_tokens` is what they hold now.
    """

    running: int
    waiting: int
    waiting_tokens: int  # of prompts
    resident_tokens: int
    committed_tokens: int
    forecast_tokens: int
    capacity_tokens: int
    margin_deviations: float
    tokens_per_second: float | None  # of one sequence
    oldest_wait_seconds: float
    admitted_total: int
    wait_seconds_total: float
    rejected_total: Mapping[Reason, int]
    overflows_total: int
    draining: bool
