"""Builds `status.conditions` so that an unchanged state is an unchanged object."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from reasoningpool.api.conditions import ConditionStatus, ConditionType, Reason
from reasoningpool.api.text import printable
from reasoningpool.objects import timestamp
from reasoningpool.planning.previous import PreviousStatus

# Conditions of which False keeps the pool from being Ready, in the order in which they explain it.
FOLDED: Final = (
    ConditionType.ACCEPTED,
    ConditionType.SIZED,
    ConditionType.WORKLOADS_READY,
    ConditionType.SIZING_VERIFIED,
    ConditionType.GATEWAY_READY,
    ConditionType.SCALING_ACTIVE,
    ConditionType.METRICS_AVAILABLE,
    ConditionType.THINKING_BUDGET_ENFORCED,
)
_MOST_TEXT: Final = 4000


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition before it has a time."""

    type: ConditionType
    status: ConditionStatus
    reason: Reason
    message: str


def true(kind: ConditionType, reason: Reason, message: str) -> Condition:
    """A condition that holds."""
    return Condition(kind, ConditionStatus.TRUE, reason, message)


def false(kind: ConditionType, reason: Reason, message: str) -> Condition:
    """A condition that does not hold."""
    return Condition(kind, ConditionStatus.FALSE, reason, message)


def unknown(kind: ConditionType, reason: Reason, message: str) -> Condition:
    """A condition nothing can be said about."""
    return Condition(kind, ConditionStatus.UNKNOWN, reason, message)


def fold(conditions: Iterable[Condition]) -> Condition:
    """The Ready condition: the first folded condition that is False speaks for all.

    Unknown does not keep a pool from being Ready: it stands for what this version does not do yet.
    """
    by_type = {condition.type: condition for condition in conditions}
    for kind in FOLDED:
        found = by_type.get(kind)
        if found is not None and found.status is ConditionStatus.FALSE:
            return false(ConditionType.READY, found.reason, found.message)
    workloads = by_type.get(ConditionType.WORKLOADS_READY)
    if workloads is None or workloads.status is not ConditionStatus.TRUE:
        reason, message = (
            (workloads.reason, workloads.message) if workloads else (Reason.CREATING, "not yet reconciled")
        )
        return unknown(ConditionType.READY, reason, message)
    return true(ConditionType.READY, Reason.READY, workloads.message)


def render(
    conditions: Iterable[Condition], before: PreviousStatus, *, generation: int, now: datetime
) -> list[dict[str, Any]]:
    """The conditions as they are applied; the transition time stays where the status stays."""

    def since(condition: Condition) -> str:
        previous = before.conditions.get(condition.type)
        stays = previous is not None and previous.status is condition.status
        return (previous.since if previous and stays else None) or timestamp(now)

    return [
        {
            "type": str(condition.type),
            "status": str(condition.status),
            "reason": str(condition.reason),
            "message": printable(condition.message)[:_MOST_TEXT],
            "lastTransitionTime": since(condition),
            "observedGeneration": generation,
        }
        for condition in conditions
    ]
