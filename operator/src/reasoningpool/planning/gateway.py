"""The gateway of a pool: what is rendered of it, and what is live."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reasoningpool.api import names
from reasoningpool.objects import Manifest, ObjectKey
from reasoningpool.planning.snapshot import ApplyFailure, Snapshot
from reasoningpool.render import PoolIdentity
from reasoningpool.render.gateway.service import gateway_url
from reasoningpool.render.gateway.standalone import render_gateway
from reasoningpool.resolution.types import EffectiveGateway, EffectiveTier
from reasoningpool.sizing.types import SizingPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOutcome:
    """A Standalone gateway after rendering. `live` is its Deployment as last seen, None before there is one."""

    url: str
    replicas: int
    manifests: tuple[Manifest, ...]
    live: Manifest | None
    failures: tuple[ApplyFailure, ...]


def gateway_outcome(
    pool: PoolIdentity,
    gateway: EffectiveGateway,
    tiers: Iterable[tuple[EffectiveTier, SizingPlan | None]],
    snapshot: Snapshot,
) -> GatewayOutcome:
    """Render the gateway in front of these tiers, and find what is there of it."""
    manifests = render_gateway(pool, gateway, tiers)
    objects = {ObjectKey.of(manifest) for manifest in manifests}
    name = names.gateway_name(pool.name)
    live = (c for c in snapshot.children if c["kind"] == "Deployment" and c["metadata"]["name"] == name)
    return GatewayOutcome(
        url=gateway_url(pool.name, pool.namespace),
        replicas=gateway.replicas,
        manifests=manifests,
        live=next(live, None),
        failures=tuple(failure for failure in snapshot.failures if failure.key in objects),
    )
