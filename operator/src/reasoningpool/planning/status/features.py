"""Conditions of what the spec asks for and this version does not do yet."""

from __future__ import annotations

from reasoningpool.api.conditions import ConditionType, Reason
from reasoningpool.api.spec import ReasoningPoolSpec
from reasoningpool.api.spec_gateway import GatewayMode
from reasoningpool.api.spec_tier import Workload
from reasoningpool.planning.status.conditions import Condition, unknown


def feature_conditions(spec: ReasoningPoolSpec) -> tuple[Condition, ...]:
    """Unknown conditions for what the spec asks for and this version does not do yet."""
    found: list[Condition] = []
    if spec.gateway is not None and spec.gateway.mode is GatewayMode.INFERENCE_GATEWAY:
        found.append(
            unknown(
                ConditionType.GATEWAY_READY,
                Reason.NOT_IMPLEMENTED,
                "mode InferenceGateway has no effect yet: use mode Standalone, or the tiers' Services",
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
