"""Everything a pool and its tiers consist of, in the order it is applied."""

from __future__ import annotations

from dataclasses import dataclass

from reasoningpool.api.findings import Finding
from reasoningpool.objects import Manifest
from reasoningpool.render.metadata import PoolIdentity
from reasoningpool.render.workload.disruption_budget import disruption_budget
from reasoningpool.render.workload.runtime_config import runtime_config_map
from reasoningpool.render.workload.service import headless_service, service
from reasoningpool.render.workload.service_account import service_account
from reasoningpool.render.workload.stateful_set import stateful_set
from reasoningpool.resolution.types import EffectiveTier
from reasoningpool.sizing.types import SizingPlan


@dataclass(frozen=True, slots=True)
class Rendered:
    """The manifests of a tier and what its user should know about them."""

    manifests: tuple[Manifest, ...]
    warnings: tuple[Finding, ...]


def render_pool(pool: PoolIdentity) -> tuple[Manifest, ...]:
    """What the tiers of a pool share."""
    return (service_account(pool),)


def render_tier(pool: PoolIdentity, tier: EffectiveTier, plan: SizingPlan, *, intent: str = "") -> Rendered:
    """The objects of a tier; the same arguments give equal manifests.

    `intent` is `pod_intent` of the user's spec; it lets `settle` tell a user's change from an operator's.
    """
    workload, warnings = stateful_set(pool, tier, plan, intent)
    return Rendered(
        manifests=(
            headless_service(pool, tier.name),
            service(pool, tier.name),
            workload,
            disruption_budget(pool, tier.name, tier.max_unavailable),
            *([runtime_config_map(pool, tier, tier.runtime)] if tier.runtime is not None else ()),
        ),
        warnings=warnings,
    )
