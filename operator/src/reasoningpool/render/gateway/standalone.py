"""All objects of a Standalone gateway."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from reasoningpool.api import names
from reasoningpool.objects import Manifest
from reasoningpool.render.gateway.config_map import config_map
from reasoningpool.render.gateway.deployment import deployment
from reasoningpool.render.gateway.disruption_budget import gateway_disruption_budget
from reasoningpool.render.gateway.service import endpoints_service, gateway_service
from reasoningpool.render.gateway.types import GatewayTier, StandaloneGateway
from reasoningpool.render.metadata import PoolIdentity
from reasoningpool.resolution.types import EffectiveGateway, EffectiveTier
from reasoningpool.sizing.types import SizingPlan

# Of a tier whose budgets do not fit: its running replicas stay, and nothing says how long their requests take.
_UNKNOWN_SECONDS: Final = 600
# A token has some 4 bytes of text; escapes (\u4e2d) and rare scripts take three to four times that.
_BYTES_PER_TOKEN: Final = 16
# Images, tools and schemas come on top of the prompt's text.
_LEAST_REQUEST_BYTES: Final = 8 << 20


def render_gateway(
    pool: PoolIdentity, gateway: EffectiveGateway, tiers: Iterable[tuple[EffectiveTier, SizingPlan | None]]
) -> tuple[Manifest, ...]:
    """The gateway's objects; the same arguments give equal manifests. A tier without a plan is routed to all the same.

    The first tier takes requests that name neither a tier nor a model.
    """
    destinations = tuple(_destination(pool, gateway, tier, plan) for tier, plan in tiers)
    standalone = StandaloneGateway(tiers=destinations)
    return (
        config_map(pool, standalone),
        gateway_service(pool, gateway),
        *(endpoints_service(pool, tier.name) for tier in destinations),
        gateway_disruption_budget(pool),
        deployment(pool, gateway, standalone),
    )


def _destination(
    pool: PoolIdentity, gateway: EffectiveGateway, tier: EffectiveTier, plan: SizingPlan | None
) -> GatewayTier:
    prompt_tokens = max(effort.prompt_tokens for effort in tier.sizing_input.efforts)
    return GatewayTier(
        name=tier.name,
        models=(tier.model.served_name,),
        # In the gateway's own namespace; the first search domain completes it, whatever the cluster's domain is.
        endpoints_host=names.endpoints_service_name(pool.name, tier.name),
        port=names.ENGINE_PORT,
        longest_request_seconds=plan.shutdown_timeout_seconds if plan else _UNKNOWN_SECONDS,
        most_request_bytes=max(_LEAST_REQUEST_BYTES, prompt_tokens * _BYTES_PER_TOKEN),
        hostnames=gateway.hostnames.get(tier.name, ()),
    )
