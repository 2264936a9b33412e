"""`GatewayReady`: whether every pod of the gateway runs what the spec says and serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reasoningpool.api import names
from reasoningpool.api.conditions import ConditionType, Reason
from reasoningpool.planning.diagnosis.apply_failures import refusals
from reasoningpool.planning.diagnosis.words import quoted
from reasoningpool.planning.gateway import GatewayOutcome
from reasoningpool.planning.status.conditions import Condition, false, true


def gateway_ready(gateway: GatewayOutcome) -> Condition:
    """The gateway in one condition, by what its Deployment reports."""
    kind = ConditionType.GATEWAY_READY
    if refused := refusals(gateway.failures):
        return false(kind, Reason.APPLY_FAILED, f"gateway: {refused}")
    if gateway.live is None:
        return false(kind, Reason.CREATING, "gateway: its Deployment is being created")
    name = gateway.live["metadata"]["name"]
    status: Mapping[str, Any] = gateway.live.get("status") or {}
    ready, updated = (_count(status, field) for field in ("availableReplicas", "updatedReplicas"))
    conditions = {entry.get("type"): entry for entry in status.get("conditions") or ()}
    served = f"{min(ready, gateway.replicas)} of {gateway.replicas} pods serve"
    creation, progress = conditions.get("ReplicaFailure", {}), conditions.get("Progressing", {})
    if creation.get("status") == "True":
        why = quoted(str(creation.get("message", "")))
        return false(kind, Reason.PODS_REFUSED, f"gateway: {served}; the API server refuses its pods: {why}")
    if progress.get("reason") == "ProgressDeadlineExceeded":
        message = f"gateway: {served}; kubectl describe pods -l {names.LABEL_GATEWAY} tells what keeps the others"
        return false(kind, Reason.GATEWAY_NOT_STARTING, message)
    if status.get("observedGeneration") != gateway.live["metadata"].get("generation"):
        return false(kind, Reason.ROLLOUT_IN_PROGRESS, f"gateway: {served}; deployment {name} has just changed")
    if updated < gateway.replicas or _count(status, "replicas") > updated:
        message = f"gateway: {served}; deployment {name} replaces its pods, {updated} are new"
        return false(kind, Reason.ROLLOUT_IN_PROGRESS, message)
    if ready < gateway.replicas:
        return false(kind, Reason.STARTING, f"gateway: {served}; see deployment {name} if this lasts")
    return true(kind, Reason.ALL_READY, f"gateway: {served} at {gateway.url}")


def _count(status: Mapping[str, Any], field: str) -> int:
    value = status.get(field)
    return value if isinstance(value, int) else 0
