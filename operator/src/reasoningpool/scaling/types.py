"""What a scaling decision is made from and what it says. Times are seconds on any one clock that does not jump."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSample:
    """The last metrics of one ready, routable replica; `age_seconds` is how old they are when they are used.

    `preemptions` and `finished` count since the start of the preemption window. `committed_tokens` is what the request
    runtime has promised to running requests, None where no runtime reports it.
    """

    pod: str
    age_seconds: float
    kv_usage: float
    running: int
    waiting: int
    preemptions: float
    finished: float
    committed_tokens: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierCapacity:
    """What the sizing says of one replica, in tokens: the same numbers the engine's limits come from."""

    usable_kv_tokens: int
    mean_resident_tokens: float
    max_num_seqs: int
    preemption_risk: float  # share of requests that may be preempted, 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TierState:
    """The replicas of a tier as they are: `desired` is the number last asked for.

    `starting` replicas are counted in `desired` and serve soon. `draining` ones finish their requests and are about to
    go; they are still counted in `desired`. `queued_at_gateway` are requests that no replica has seen yet.
    """

    desired: int
    ready: int
    starting: int
    draining: int = 0
    queued_at_gateway: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Fewest and most replicas in force now. `most_by_gpus` is what GPU budgets leave room for, None without one."""

    minimum: int
    maximum: int
    most_by_gpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPolicy:
    """Targets, windows and rates of one tier.

    `target_usage` is the share of usable KV tokens to aim at when growing; a smaller number of replicas must stay
    below `scale_down_usage` to be taken, and the gap between the two keeps a constant load from moving the number.
    """

    target_usage: float = 0.70
    scale_down_usage: float = 0.55
    scale_up_stabilization_seconds: float = 0.0
    scale_down_stabilization_seconds: float = 300.0
    most_added_at_once: int = 4
    most_added_share: float = 1.0  # of the replicas there are; the larger of both counts
    most_removed_at_once: int = 1
    removal_interval_seconds: float = 60.0
    max_sample_age_seconds: float = 45.0
    fresh_share_to_grow: float = 0.5


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Replicas that the signals alone asked for at a point in time."""

    at: float
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What one decision hands to the next. An empty one is safe: it only delays scale-down by its window."""

    recommendations: tuple[Recommendation, ...] = ()
    last_scale_up: float | None = None
    last_scale_down: float | None = None
    last_excess_preemption: float | None = None
    started: float | None = None  # of this history: no scale-down before a whole window has been seen


class Direction(StrEnum):
    """What becomes of the number."""

    UP = "Up"
    DOWN = "Down"
    NONE = "None"


class LimitedBy(StrEnum):
    """Why the number is not what the signals ask for; reasons of the condition ScalingLimited."""

    TOO_FEW_REPLICAS = "TooFewReplicas"  # the HPA's words: the minimum is larger
    TOO_MANY_REPLICAS = "TooManyReplicas"  # the maximum is smaller
    GPU_BUDGET = "GPUBudget"
    RATE = "ScaleRateLimit"
    STABILIZED = "Stabilized"
    PREEMPTIONS = "Preemptions"
    METRICS = "MetricsUnavailable"
    STARTING = "ReplicasStarting"
    DRAINING = "ReplicasDraining"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One stage of a decision: the signal it looked at, its value with a unit, the replicas it leaves, and why."""

    signal: str
    value: str
    replicas: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Replicas to have, how that came about, and the history for the next decision.

    `limited` names every stage that kept the number from what the signals asked for. `metrics_available` is False when
    too little fresh data was there and the size was held for that reason.
    """

    replicas: int
    direction: Direction
    steps: tuple[Step, ...]
    limited: tuple[LimitedBy, ...]
    metrics_available: bool
    history: History

    @property
    def reason(self) -> str:
        """The last step's reason: what decided."""
        return self.steps[-1].reason if self.steps else ""
