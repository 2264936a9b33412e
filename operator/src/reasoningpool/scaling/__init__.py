"""Autoscaling of one tier as pure functions: (signals, policy, history, now) -> decision with its steps.

Knows no Kubernetes, no Prometheus and no clock. Who reads the signals and who writes replicas is elsewhere.
"""

from reasoningpool.scaling.decide import decide
from reasoningpool.scaling.types import (
    Bounds,
    Decision,
    Direction,
    History,
    LimitedBy,
    PodSample,
    Recommendation,
    ScalingPolicy,
    Step,
    TierCapacity,
    TierState,
)

__all__ = [
    "Bounds",
    "Decision",
    "Direction",
    "History",
    "LimitedBy",
    "PodSample",
    "Recommendation",
    "ScalingPolicy",
    "Step",
    "TierCapacity",
    "TierState",
    "decide",
]
