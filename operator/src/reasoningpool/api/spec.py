"""The ReasoningPool's spec. The CRD is generated from these classes; their docstrings are what `kubectl explain` shows.

There are no defaults in the schema: an absent field means "the operator decides", the decision is
shown in `status.tiers[].effective`, and so a GitOps tool never sees a difference it did not make.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from reasoningpool.api.base import ApiModel, Rule, list_map, unique
from reasoningpool.api.scalars import Flag, ObjectName
from reasoningpool.api.spec_engine import AcceleratorSpec, EngineSpec
from reasoningpool.api.spec_model import ModelSpec
from reasoningpool.api.spec_runtime import RuntimeSpec
from reasoningpool.api.spec_tier import TierSpec


class GatewayMode(StrEnum):
    """Which routing configuration is written."""

    INFERENCE_GATEWAY = "InferenceGateway"
    STANDALONE = "Standalone"
    NONE = "None"


class ParentRef(ApiModel):
    """A Gateway the routes attach to."""

    name: ObjectName
    """Name of the Gateway."""
    namespace: ObjectName | None = None
    """Default: the pool's namespace."""
    section_name: ObjectName | None = None
    """A listener of the Gateway. Default: all."""


class FailureMode(StrEnum):
    """What happens to requests while the endpoint picker is down."""

    FAIL_OPEN = "FailOpen"
    FAIL_CLOSE = "FailClose"


class GatewaySpec(ApiModel):
    """Routing to the tiers."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(self.mode == 'InferenceGateway') == (has(self.parentRefs) && size(self.parentRefs) > 0)",
            holds=lambda self: (self.mode == GatewayMode.INFERENCE_GATEWAY) == bool(self.parent_refs),
            message="parentRefs are required for mode InferenceGateway and must be absent for the other modes",
            field=".parentRefs",
        ),
    )

    mode: GatewayMode
    """InferenceGateway, Standalone or None."""
    parent_refs: Annotated[tuple[ParentRef, ...], Field(max_length=8)] | None = None
    """Gateways the routes attach to."""
    failure_mode: FailureMode | None = None
    """Default: FailOpen."""


class MonitoringSpec(ApiModel):
    """Objects for the Prometheus operator."""

    pod_monitor: Flag | None = None
    """Write a PodMonitor per pool. Default: false."""
    rules: Flag | None = None
    """Write alert rules. Default: false."""


class ReasoningPoolSpec(ApiModel):
    """A model, its accelerators and one or more tiers that serve it."""

    RULES: ClassVar[tuple[Rule, ...]] = (unique("tiers", "name"),)

    model: ModelSpec
    """The model all tiers serve unless they name their own."""
    accelerator: AcceleratorSpec
    """The accelerators of every replica unless a tier names its own."""
    engine: EngineSpec | None = None
    """The vLLM server."""
    tiers: Annotated[tuple[TierSpec, ...], list_map(minimum=1, maximum=16)]
    """Groups of replicas; each becomes a StatefulSet."""
    runtime: RuntimeSpec | None = None
    """The request runtime inside the serving pods."""
    gateway: GatewaySpec | None = None
    """Routing to the tiers. Default: none."""
    monitoring: MonitoringSpec | None = None
    """Monitoring objects. Default: none."""
    suspend: Flag | None = None
    """Leave all objects of the pool as they are; nothing is changed or removed until it is false again."""
