"""Fields that are accepted but have no effect in this version: said in plain words, never silently ignored."""

from __future__ import annotations

from reasoningpool.api.conditions import Reason
from reasoningpool.api.findings import Finding, warning
from reasoningpool.api.spec import ReasoningPoolSpec
from reasoningpool.api.spec_gateway import GatewayMode
from reasoningpool.api.spec_tier import TierSpec


def unused_pool_fields(spec: ReasoningPoolSpec) -> tuple[Finding, ...]:
    """Fields of the pool without effect."""
    found: list[Finding] = []
    monitoring, gateway = spec.monitoring, spec.gateway
    if monitoring is not None and (monitoring.pod_monitor or monitoring.rules):
        found.append(_without_effect("spec.monitoring", "no PodMonitor and no rules are written"))
    if gateway is not None and gateway.failure_mode is not None:
        found.append(_without_effect("spec.gateway.failureMode", "no endpoint picker is deployed"))
    standalone = gateway is not None and gateway.mode is GatewayMode.STANDALONE
    if gateway is not None and gateway.standalone is not None and not standalone:
        found.append(_without_effect("spec.gateway.standalone", f"the mode is {gateway.mode}"))
    if not standalone and any(tier.hostnames for tier in spec.tiers):
        found.append(_without_effect("spec.tiers[].hostnames", "only a gateway of mode Standalone routes by them"))
    return tuple(found)


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
