"""Condition types and reasons: closed lists, since dashboards and scripts match on them.

Each is declared once, with what it means and what to do about it; `docs/reference/conditions.md` is made from here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Self


class ConditionType(StrEnum):
    """Types of `status.conditions`. True is good for all of them."""

    meaning: str
    """What True means."""

    # Only lookups by value, as in ConditionType("Ready"), go without the rest; a test finds members that do.
    def __new__(cls, name: str, meaning: str = "") -> Self:
        member = str.__new__(cls, name)
        member._value_ = name
        member.meaning = meaning
        return member

    READY = ("Ready", "every replica serves what the spec says")
    ACCEPTED = ("Accepted", "the spec is valid")
    SIZED = ("Sized", "the budgets fit the accelerators")
    WORKLOADS_READY = ("WorkloadsReady", "every replica runs what the spec says and serves")
    SIZING_VERIFIED = (
        "SizingVerified",
        "the engine's real KV pool agrees with the plan",
    )
    GATEWAY_READY = (
        "GatewayReady",
        "every pod of the gateway serves; there with `gateway.mode` Standalone only",
    )
    SCALING_ACTIVE = ("ScalingActive", "the autoscaler has its numbers; not set in this version")
    SCALING_LIMITED = ("ScalingLimited", "the autoscaler wants more than it may; not set in this version")
    METRICS_AVAILABLE = ("MetricsAvailable", "the metrics that scaling needs are there; not set in this version")
    THINKING_BUDGET_ENFORCED = (
        "ThinkingBudgetEnforced",
        "clients cannot exceed the thinking budgets; not set in this version",
    )


class ConditionStatus(StrEnum):
    """Kubernetes' three condition states."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class ReasonGroup(StrEnum):
    """What kind of news a reason is."""

    FAILURE = "Failures"
    SPEC = "The spec"
    PROGRESS = "Progress"
    OTHER = "Others"


class Reason(StrEnum):
    """Reasons of conditions and events."""

    group: ReasonGroup
    meaning: str
    advice: str
    """What to do; empty where nothing is to be done."""

    def __new__(cls, name: str, group: ReasonGroup = ReasonGroup.OTHER, meaning: str = "", advice: str = "") -> Self:
        member = str.__new__(cls, name)
        member._value_ = name
        member.group = group
        member.meaning = meaning
        member.advice = advice
        return member

    WAITING_FOR_GPU = (
        "WaitingForGPU",
        ReasonGroup.FAILURE,
        "no node has enough free devices",
        "free some, add nodes, lower `replicas` or `perReplica`",
    )
    UNSCHEDULABLE = (
        "Unschedulable",
        ReasonGroup.FAILURE,
        "no node matches, a claim is not bound, or a scheduling gate holds the pod",
        "what the scheduler asks for in the message",
    )
    PODS_REFUSED = (
        "PodsRefused",
        ReasonGroup.FAILURE,
        "quota, LimitRange, PriorityClass, Pod Security or a policy rejects the pods",
        "what the message advises; retried within 17 minutes, or at once after `kubectl annotate sts NAME retry=1`",
    )
    IMAGE_PULL_FAILED = (
        "ImagePullFailed",
        ReasonGroup.FAILURE,
        "an image cannot be pulled",
        "`engine.image`, `engine.imagePullSecrets`",
    )
    CONFIG_MISSING = (
        "ConfigMissing",
        ReasonGroup.FAILURE,
        "a Secret, ConfigMap or key is missing",
        "create it; the pod starts by itself",
    )
    MODEL_NOT_FOUND = (
        "ModelNotFound",
        ReasonGroup.FAILURE,
        "the hub or the volume has no such model",
        "`model.id`, `model.revision`, `model.source`",
    )
    MODEL_ACCESS_DENIED = (
        "ModelAccessDenied",
        ReasonGroup.FAILURE,
        "the model is gated, or the token is wrong",
        "accept the licence, `model.source.huggingFace.tokenSecretRef`",
    )
    OUT_OF_MEMORY = (
        "OutOfMemory",
        ReasonGroup.FAILURE,
        "the device or the host ran out of memory",
        "as the message says: `engine.memoryUtilizationPercent`, or the container's memory limit",
    )
    KV_CACHE_TOO_SMALL = (
        "KVCacheTooSmall",
        ReasonGroup.FAILURE,
        "the engine found less room for KV cache than planned",
        "lower the budgets, FP8, more devices",
    )
    BAD_ARGUMENT = (
        "BadArgument",
        ReasonGroup.FAILURE,
        "vLLM rejects an argument",
        "`engine.extraArgs`, `model.parsers`, `engine.version`",
    )
    DTYPE_UNSUPPORTED = (
        "DTypeUnsupported",
        ReasonGroup.FAILURE,
        "the device cannot compute in that type",
        "`kvCacheDType` BF16 or Auto",
    )
    CRASH_LOOP = (
        "CrashLoop",
        ReasonGroup.FAILURE,
        "the engine exited with an error that the operator does not recognize",
        "the message quotes it; `kubectl logs POD --previous`",
    )
    EVICTED = (
        "Evicted",
        ReasonGroup.FAILURE,
        "the kubelet evicted the pod (node pressure, shutdown, no healthy device)",
        "it is replaced; request what it uses, or check the node",
    )
    NODE_LOST = (
        "NodeLost",
        ReasonGroup.FAILURE,
        "a node stopped reporting, with a pod that was ready or should have terminated",
        "check the node; if it is gone for good, `kubectl delete node`",
    )
    APPLY_FAILED = (
        "ApplyFailed",
        ReasonGroup.FAILURE,
        "the API server rejects an object of the pool",
        "the message quotes it: a missing permission, or a field",
    )
    GATEWAY_NOT_STARTING = (
        "GatewayNotStarting",
        ReasonGroup.FAILURE,
        "pods of the gateway are not ready 10 minutes after a change",
        "`gateway.standalone.image` and `imagePullSecrets`; `kubectl describe pods` as the message says",
    )
    ACCEPTED = ("Accepted", ReasonGroup.SPEC, "the spec is valid; doubts about it are in the message")
    INVALID_SPEC = (
        "InvalidSpec",
        ReasonGroup.SPEC,
        "fields contradict each other or cannot be used; running pods are left alone",
        "correct the field named in the message",
    )
    UNKNOWN_MODEL = ("UnknownModel", ReasonGroup.SPEC, "the model is not in the catalog", "`model.configJSON`")
    UNKNOWN_ACCELERATOR = (
        "UnknownAccelerator",
        ReasonGroup.SPEC,
        "the product is not in the catalog",
        "use the suggested name, or `accelerator.custom`",
    )
    KV_DTYPE_UNSUPPORTED = (
        "KVDTypeUnsupported",
        ReasonGroup.SPEC,
        "model or accelerator does not support `kvCacheDType`",
        "another `kvCacheDType`",
    )
    SIZED = ("Sized", ReasonGroup.SPEC, "every tier's budgets fit")
    DOES_NOT_FIT = (
        "DoesNotFit",
        ReasonGroup.SPEC,
        "a tier's budgets do not fit its accelerators; what runs stays as it was",
        "one of the changes that the message lists",
    )
    CREATING = ("Creating", ReasonGroup.PROGRESS, "objects or pods are being created")
    STARTING = (
        "Starting",
        ReasonGroup.PROGRESS,
        "replicas load the model, or finish requests before they are replaced",
    )
    ROLLOUT_IN_PROGRESS = (
        "RolloutInProgress",
        ReasonGroup.PROGRESS,
        "pods are replaced one at a time; `status.tiers[].rollout.change` says why",
    )
    NOT_READY = (
        "NotReady",
        ReasonGroup.PROGRESS,
        "an engine was serving but no longer passes its readiness probe; if it lasts, `kubectl logs POD`",
    )
    ALL_READY = ("AllReplicasReady", ReasonGroup.PROGRESS, "every replica serves")
    SCALED_TO_ZERO = ("ScaledToZero", ReasonGroup.PROGRESS, "the tier has 0 replicas")
    READY = ("Ready", ReasonGroup.PROGRESS, "the whole pool serves")
    SUSPENDED = (
        "Suspended",
        ReasonGroup.PROGRESS,
        "`spec.suspend` is true: nothing is changed; the message says which changes wait",
    )
    NOT_IMPLEMENTED = ("NotImplemented", ReasonGroup.OTHER, "the field is accepted and has no effect in this version")
    VERIFIED = (
        "Verified",
        ReasonGroup.OTHER,
        "the engines' real KV pools hold what was planned, or more",
    )
    CORRECTED = (
        "Corrected",
        ReasonGroup.OTHER,
        "they held less; the tier was sized again from them, and they match that",
    )
    KV_POOL_SMALLER = (
        "KVPoolSmaller",
        ReasonGroup.OTHER,
        "they hold less than planned; the tier is sized again and its pods roll once",
    )
    KV_POOL_TOO_SMALL = (
        "KVPoolTooSmall",
        ReasonGroup.OTHER,
        "the real KV pool is too small for one request; the pods keep running, the message says what to change",
    )
    METRICS_UNREACHABLE = (
        "MetricsUnreachable",
        ReasonGroup.OTHER,
        "the operator cannot reach an engine's metrics port: the plan is not verified, the pool is Ready all the same",
    )
    METRIC_MISSING = (
        "MetricMissing",
        ReasonGroup.OTHER,
        "an engine's metrics page does not give the size of its KV pool: as above",
    )
    NOT_VERIFIED = ("NotVerified", ReasonGroup.OTHER, "no ready replica has been read yet")
    NOT_ENFORCEABLE = (
        "NotEnforceable",
        ReasonGroup.OTHER,
        "event: vLLM cannot hold a thinking budget with this model's parser; the sizing counts with it",
    )
    RECONCILE_ERROR = (
        "ReconcileError",
        ReasonGroup.OTHER,
        "internal error on this pool: report it with the operator's log; pods keep running",
    )
    WORKLOAD_CREATED = ("WorkloadCreated", ReasonGroup.OTHER, "event: a StatefulSet was created")
    ROLLOUT_STARTED = ("RolloutStarted", ReasonGroup.OTHER, "event: pods are about to be replaced, and what changed")
    TIER_REMOVED = (
        "TierRemoved",
        ReasonGroup.OTHER,
        "event: a tier's objects are removed after its requests are finished",
    )
    STUCK_POD_DELETED = (
        "StuckPodDeleted",
        ReasonGroup.OTHER,
        "event: a pod of an old revision that did not serve was deleted, so that the new one can start",
    )
    POD_REPLACED = (
        "PodReplaced",
        ReasonGroup.OTHER,
        "event: a pod was deleted because its StatefulSet now has claims that cannot be added to a running pod",
    )
    SPEC_WARNING = (
        "SpecWarning",
        ReasonGroup.OTHER,
        "event: something in the spec is doubtful; also in `status.tiers[].warnings`",
    )


# Failures that need a person; everything else in WorkloadsReady=False is progress.
FAILURE_REASONS: Final = frozenset(reason for reason in Reason if reason.group is ReasonGroup.FAILURE)
