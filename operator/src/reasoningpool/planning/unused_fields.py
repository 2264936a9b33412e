"""Fields that are accepted but have no effect in this version: said in plain words, never silently ignored."""

from __future__ import annotations

from reasoningpool.api.conditions import Reason
from reasoningpool.api.findings import Finding, warning
from reasoningpool.api.spec import ReasoningPoolSpec
from reasoningpool.api.spec_tier import TierSpec


def unused_pool_fields(spec: ReasoningPoolSpec) -> tuple[Finding, ...]:
    """Fields of the pool without effect."""
    monitoring = spec.monitoring
    if monitoring is not None and (monitoring.pod_monitor or monitoring.rules):
        return (_without_effect("spec.monitoring", "no PodMonitor and no rules are written"),)
    return ()


def unused_tier_fields(tier: TierSpec, path: str) -> tuple[Finding, ...]:
    """Fields of a tier without effect on the operator, by `Reason.NOT_IMPLEMENTED`; the command `plan` uses them."""
    objectives = tier.objectives
    if objectives is not None and objectives.time_to_first_answer_token_seconds is not None:
        field = f"{path}.objectives.timeToFirstAnswerTokenSeconds"
        return (_without_effect(field, "it is for scaling and alerts", tier.name),)
    return ()


def _without_effect(path: str, instead: str, tier: str | None = None) -> Finding:
    message = f"{path} has no effect yet: {instead}"
    return warning(path, message, Reason.NOT_IMPLEMENTED, tier=tier, standalone=True)
