"""Routing to the tiers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from reasoningpool.api.base import ApiModel, Rule
from reasoningpool.api.scalars import ImageReference, ObjectName


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


class Picker(StrEnum):
    """What chooses a replica within a tier."""

    NONE = "None"


class ServiceType(StrEnum):
    """How the gateway's Service is published."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class StandaloneSpec(ApiModel):
    """The Envoy Deployment of mode Standalone."""

    picker: Picker | None = None
    """Endpoint picker beside Envoy; None: Envoy chooses by session and by the prompt's prefix. Default: None."""
    image: ImageReference | None = None
    """Envoy's image, with bash. Default: envoyproxy/envoy:v1.40.0."""
    image_pull_secrets: Annotated[tuple[ObjectName, ...], Field(max_length=8)] | None = None
    """Secrets to pull the image with."""
    replicas: Annotated[int, Field(strict=True, ge=1, le=100)] | None = None
    """Pods of Envoy. Default: 2."""
    service_type: ServiceType | None = None
    """Type of the gateway's Service. Default: ClusterIP."""


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
    standalone: StandaloneSpec | None = None
    """Settings of mode Standalone."""
