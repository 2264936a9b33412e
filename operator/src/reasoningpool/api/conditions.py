"""Condition types and reasons: a closed list, since dashboards and scripts match on them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class ConditionType(StrEnum):
    """Types of `status.conditions`. True is good for all of them."""

    READY = "Ready"  # all of the others that apply
    ACCEPTED = "Accepted"  # the spec makes sense
    SIZED = "Sized"  # the budgets fit the accelerators
    WORKLOADS_READY = "WorkloadsReady"  # every replica runs what the spec says and serves
    SIZING_VERIFIED = "SizingVerified"  # the engine's real KV pool agrees with the plan
    GATEWAY_READY = "GatewayReady"
    SCALING_ACTIVE = "ScalingActive"
    SCALING_LIMITED = "ScalingLimited"  # follows the HPA's meaning and is not folded into Ready
    METRICS_AVAILABLE = "MetricsAvailable"
    THINKING_BUDGET_ENFORCED = "ThinkingBudgetEnforced"


class ConditionStatus(StrEnum):
    """Kubernetes' three condition states."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Reason(StrEnum):
    """Reasons of conditions and events."""

    # Accepted
    ACCEPTED = "Accepted"
    INVALID_SPEC = "InvalidSpec"
    UNKNOWN_MODEL = "UnknownModel"
    UNKNOWN_ACCELERATOR = "UnknownAccelerator"
    KV_DTYPE_UNSUPPORTED = "KVDTypeUnsupported"
    # Sized
    SIZED = "Sized"
    DOES_NOT_FIT = "DoesNotFit"
    # WorkloadsReady and pods
    ALL_READY = "AllReplicasReady"
    SCALED_TO_ZERO = "ScaledToZero"
    CREATING = "Creating"
    STARTING = "Starting"
    ROLLOUT_IN_PROGRESS = "RolloutInProgress"
    WAITING_FOR_GPU = "WaitingForGPU"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    MODEL_NOT_FOUND = "ModelNotFound"
    MODEL_ACCESS_DENIED = "ModelAccessDenied"
    OUT_OF_MEMORY = "OutOfMemory"
    KV_CACHE_TOO_SMALL = "KVCacheTooSmall"
    BAD_ARGUMENT = "BadArgument"
    DTYPE_UNSUPPORTED = "DTypeUnsupported"
    CONFIG_MISSING = "ConfigMissing"
    CRASH_LOOP = "CrashLoop"
    NOT_READY = "NotReady"
    PODS_REFUSED = "PodsRefused"
    EVICTED = "Evicted"
    NODE_LOST = "NodeLost"
    APPLY_FAILED = "ApplyFailed"
    # SizingVerified
    VERIFIED = "Verified"
    CORRECTED = "Corrected"
    KV_POOL_SMALLER = "KVPoolSmaller"
    KV_POOL_TOO_SMALL = "KVPoolTooSmall"
    METRICS_UNREACHABLE = "MetricsUnreachable"
    METRIC_MISSING = "MetricMissing"
    NOT_VERIFIED = "NotVerified"
    # features that have no effect yet
    NOT_IMPLEMENTED = "NotImplemented"
    NOT_ENFORCEABLE = "NotEnforceable"
    # the pool as a whole
    SUSPENDED = "Suspended"
    READY = "Ready"
    RECONCILE_ERROR = "ReconcileError"
    # events
    WORKLOAD_CREATED = "WorkloadCreated"
    ROLLOUT_STARTED = "RolloutStarted"
    TIER_REMOVED = "TierRemoved"
    STUCK_POD_DELETED = "StuckPodDeleted"
    POD_REPLACED = "PodReplaced"
    SPEC_WARNING = "SpecWarning"


# Failures that need a person; everything else in WorkloadsReady=False is progress.
FAILURE_REASONS: Final = frozenset(
    {
        Reason.WAITING_FOR_GPU,
        Reason.UNSCHEDULABLE,
        Reason.IMAGE_PULL_FAILED,
        Reason.MODEL_NOT_FOUND,
        Reason.MODEL_ACCESS_DENIED,
        Reason.OUT_OF_MEMORY,
        Reason.KV_CACHE_TOO_SMALL,
        Reason.BAD_ARGUMENT,
        Reason.DTYPE_UNSUPPORTED,
        Reason.CONFIG_MISSING,
        Reason.CRASH_LOOP,
        Reason.PODS_REFUSED,
        Reason.EVICTED,
        Reason.NODE_LOST,
        Reason.APPLY_FAILED,
    }
)
