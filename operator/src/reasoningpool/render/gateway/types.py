"""What the gateway's renderers need to know of a pool, with everything decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Headers that clients may set.
HEADER_SESSION: Final = "x-session-id"
HEADER_TIER: Final = "x-reasoningpool-tier"
# Headers that only the gateway sets: a client's are removed before anything looks at them.
HEADER_PREFIX: Final = "x-reasoningpool-prefix"
HEADER_DESTINATION: Final = "x-gateway-destination-endpoint"
HEADER_MODEL: Final = "x-gateway-model-name"
INTERNAL_HEADERS: Final = (HEADER_PREFIX, HEADER_DESTINATION, HEADER_MODEL)

_OWN_MEMORY_BYTES: Final = 512 << 20
_LARGEST_BODIES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayTier:
    """A tier as a destination. `endpoints_host` resolves to the addresses of its ready, routable pods.

    `longest_request_seconds` is how long its largest effort may take, from the budgets; `most_request_bytes` the
    largest body that a prompt within its budget can have.
    """

    name: str
    models: tuple[str, ...]
    endpoints_host: str
    port: int
    longest_request_seconds: int
    most_request_bytes: int
    hostnames: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneGateway:
    """One Envoy in front of all tiers of a pool. The first tier is the default of requests that name no model."""

    tiers: tuple[GatewayTier, ...]
    listen_port: int = 8080
    health_port: int = 8081
    admin_port: int = 9901
    # An IPv6-only cluster has no 0.0.0.0; the wildcard takes both families.
    listen_address: str = "::"

    @property
    def most_request_bytes(self) -> int:
        """Bytes of a body that are held in memory, for routing by its content and for retries."""
        return max(tier.most_request_bytes for tier in self.tiers)

    @property
    def memory_limit_bytes(self) -> int:
        """Of a pod: Envoy itself, and room for some of the largest bodies at a time."""
        return _OWN_MEMORY_BYTES + _LARGEST_BODIES * self.most_request_bytes

    @property
    def longest_request_seconds(self) -> int:
        """How long a stream may run; a drain waits for it."""
        return max(tier.longest_request_seconds for tier in self.tiers)
