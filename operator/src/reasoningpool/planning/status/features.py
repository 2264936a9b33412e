"""Fields that are accepted but have no effect in this version: said in plain words, never silently ignored."""

from __future__ import annotations

from reasoningpool.api.conditions import ConditionType, Reason
from reasoningpool.api.findings import Finding, warning
from reasoningpool.api.spec import GatewayMode, ReasoningPoolSpec
from reasoningpool.api.spec_tier import TierSpec, Workload
from reasoningpool.planning.status.conditions import Condition, unknown


def feature_conditions(spec: ReasoningPoolSpec) -> tuple[Condition, ...]:
    """Unknown conditions for what the spec asks for and this version does not do yet."""
    found: list[Condition] = []
    if spec.gateway is not None and spec.gateway.mode is not GatewayMode.NONE:
        found.append(
            unknown(
                ConditionType.GATEWAY_READY,
                Reason.NOT_IMPLEMENTED,
                f"spec.gateway has no effect yet: no {spec.gateway.mode} objects are written; use the tiers' Services",
            )
        )
    if any(tier.scaling for tier in spec.tiers):
        found.append(
            unknown(
                ConditionType.SCALING_ACTIVE,
                Reason.NOT_IMPLEMENTED,
                "scaling has no effect yet beyond minReplicas, which is the number of replicas",
            )
        )
    if any(tier.workload is Workload.REASONING for tier in spec.tiers):
        found.append(
            unknown(
                ConditionType.THINKING_BUDGET_ENFORCED,
                Reason.NOT_IMPLEMENTED,
                "thinking budgets are not injected yet: clients must send thinking_token_budget and max_tokens",
            )
        )
    return tuple(found)


def pool_feature_warnings(spec: ReasoningPoolSpec) -> tuple[Finding, ...]:
    """Fields of the pool without effect."""
    monitoring = spec.monitoring
    if monitoring is not None and (monitoring.pod_monitor or monitoring.rules):
        return (_without_effect("spec.monitoring", "no PodMonitor and no rules are written"),)
    return ()


def tier_feature_warnings(tier: TierSpec, path: str) -> tuple[Finding, ...]:
    """Fields of a tier without effect on the operator, by `Reason.NOT_IMPLEMENTED`; the command `plan` uses them."""
    objectives = tier.objectives
    if objectives is not None and objectives.time_to_first_answer_token_seconds is not None:
        field = f"{path}.objectives.timeToFirstAnswerTokenSeconds"
        return (_without_effect(field, "it is for scaling and alerts", tier.name),)
    return ()


def _without_effect(path: str, instead: str, tier: str | None = None) -> Finding:
    message = f"{path} has no effect yet: {instead}"
    return warning(path, message, Reason.NOT_IMPLEMENTED, tier=tier, standalone=True)
