"""The Standalone gateway of a pool with everything decided."""

from __future__ import annotations

from reasoningpool.api.findings import Findings
from reasoningpool.api.spec import ReasoningPoolSpec
from reasoningpool.api.spec_gateway import GatewayMode, ServiceType, StandaloneSpec
from reasoningpool.resolution import defaults
from reasoningpool.resolution.types import EffectiveGateway


def resolve_gateway(spec: ReasoningPoolSpec, findings: Findings) -> EffectiveGateway | None:
    """The gateway that the operator runs for the pool, None in the other modes."""
    _check_hostnames(spec, findings)
    if spec.gateway is None or spec.gateway.mode is not GatewayMode.STANDALONE:
        return None
    stated = spec.gateway.standalone or StandaloneSpec()
    return EffectiveGateway(
        image=stated.image or defaults.GATEWAY_IMAGE,
        image_pull_secrets=stated.image_pull_secrets or (),
        replicas=stated.replicas or defaults.GATEWAY_REPLICAS,
        service_type=stated.service_type or ServiceType.CLUSTER_IP,
        hostnames={tier.name: tier.hostnames for tier in spec.tiers if tier.hostnames},
    )


def _check_hostnames(spec: ReasoningPoolSpec, findings: Findings) -> None:
    """A host leads to one tier."""
    taken: dict[str, str] = {}
    for index, tier in enumerate(spec.tiers):
        for place, host in enumerate(tier.hostnames or ()):
            if host in taken:
                findings.of(tier.name).error(
                    f"spec.tiers[{index}].hostnames[{place}]",
                    f"{host} leads to tier {taken[host]} already; a host name may stand once in a pool",
                )
            taken.setdefault(host, tier.name)
