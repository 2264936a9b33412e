"""Envoy's static configuration for a pool: one listener, a route per tier, and prefix-aware choice of a replica.

Without an endpoint picker a request goes to the replica its session or its prompt's prefix hashes to (Maglev, so that
few move when replicas come and go), with bounded load: a replica with more than its share of the running requests
passes further ones on ("Consistent Hashing with Bounded Loads", Mirrokni, Thorup and Zadimoghaddam, 2018).
"""

from __future__ import annotations

from importlib import resources
from typing import Any, Final

from reasoningpool.render.gateway.errors import error_body, local_replies
from reasoningpool.render.gateway.types import (
    HEADER_PREFIX,
    HEADER_SESSION,
    HEADER_TIER,
    INTERNAL_HEADERS,
    GatewayTier,
    StandaloneGateway,
)

_TYPE: Final = "type.googleapis.com/"
# Most running requests of a replica, as a share of the mean: beyond it the next replica on the ring is taken.
_LOAD_BOUND_PERCENT: Final = 125
# Circuit breakers guard Envoy's memory, not the engines: queueing is theirs. The default of 3 retries at a time loses
# requests when a replica with many of them dies.
_MOST_REQUESTS: Final = 40_000
_MOST_RETRIES: Final = 1024
_METADATA: Final = "reasoningpool"
_SLOWEST_BODY_SECONDS: Final = 60


def bootstrap(gateway: StandaloneGateway) -> dict[str, Any]:
    """The bootstrap document. `envoy --mode validate` accepts it."""
    return {
        "admin": {"address": _address("127.0.0.1", gateway.admin_port)},
        "static_resources": {
            "listeners": [_listener(gateway), _health_listener(gateway)],
            "clusters": [_cluster(tier) for tier in gateway.tiers],
        },
        "overload_manager": _overload_manager(gateway),
        "layered_runtime": {"layers": [{"name": "static", "static_layer": {"re2.max_program_size.error_level": 1000}}]},
    }


def _overload_manager(gateway: StandaloneGateway) -> dict[str, Any]:
    """Further requests get 503 before memory runs out, which would end all of them."""
    heap = "envoy.resource_monitors.fixed_heap"
    kind = "envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig"
    trigger = {"name": heap, "threshold": {"value": 0.9}}
    return {
        "refresh_interval": "0.25s",
        "resource_monitors": [
            {"name": heap, "typed_config": _any(kind, max_heap_size_bytes=gateway.memory_limit_bytes)}
        ],
        "actions": [{"name": "envoy.overload_actions.stop_accepting_requests", "triggers": [trigger]}],
    }


def _address(host: str, port: int) -> dict[str, Any]:
    socket: dict[str, Any] = {"address": host, "port_value": port}
    if host == "::":
        socket["ipv4_compat"] = True
    return {"socket_address": socket}


def _any(kind: str, **fields: Any) -> dict[str, Any]:
    return {"@type": f"{_TYPE}{kind}", **fields}


def _listener(gateway: StandaloneGateway) -> dict[str, Any]:
    return {
        "name": "requests",
        "address": _address(gateway.listen_address, gateway.listen_port),
        "per_connection_buffer_limit_bytes": gateway.most_request_bytes,
        "filter_chains": [{"filters": [_connection_manager(gateway)]}],
    }


def _connection_manager(gateway: StandaloneGateway) -> dict[str, Any]:
    manager = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
    return {
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": _any(
            manager,
            stat_prefix="requests",
            codec_type="AUTO",
            normalize_path=True,
            merge_slashes=True,
            path_with_escaped_slashes_action="REJECT_REQUEST",
            # Thinking sends nothing for minutes; what is bounded is the time a client takes to send its request.
            stream_idle_timeout="0s",
            request_timeout=f"{_SLOWEST_BODY_SECONDS}s",
            request_headers_timeout="10s",
            common_http_protocol_options={"idle_timeout": "3600s"},
            server_header_transformation="PASS_THROUGH",
            early_header_mutation_extensions=[_strip_internal_headers()],
            local_reply_config=local_replies(),
            access_log=[_access_log()],
            http_filters=[_model_filter(), _prefix_filter(), _router_filter()],
            route_config={"name": "tiers", "virtual_hosts": _virtual_hosts(gateway)},
        ),
    }


def _strip_internal_headers() -> dict[str, Any]:
    kind = "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation"
    return {
        "name": "strip-internal-headers",
        "typed_config": _any(kind, mutations=[{"remove": name} for name in INTERNAL_HEADERS]),
    }


def _model_filter() -> dict[str, Any]:
    """The body's `model`, for the routes to match; a list of content types would miss one with a charset."""
    value = {"metadata_namespace": _METADATA, "key": "model"}
    rule = {
        "selectors": [{"key": "model"}],
        "on_present": value,
        "on_missing": {**value, "value": ""},
        "on_error": {**value, "value": ""},
    }
    kind = "envoy.extensions.filters.http.json_to_metadata.v3.JsonToMetadata"
    regex = {"regex": "(?i)application/([a-z0-9.+-]+\\+)?json(;.*)?"}
    return {
        "name": "envoy.filters.http.json_to_metadata",
        "typed_config": _any(kind, request_rules={"allow_content_types_regex": regex, "rules": [rule]}),
    }


def _prefix_filter() -> dict[str, Any]:
    script = resources.files(__package__).joinpath("prefix_hash.lua").read_text(encoding="utf-8")
    kind = "envoy.extensions.filters.http.lua.v3.Lua"
    return {"name": "envoy.filters.http.lua", "typed_config": _any(kind, default_source_code={"inline_string": script})}


def _router_filter() -> dict[str, Any]:
    return {
        "name": "envoy.filters.http.router",
        "typed_config": _any("envoy.extensions.filters.http.router.v3.Router", suppress_envoy_headers=True),
    }


def _access_log() -> dict[str, Any]:
    """One JSON line per request without prompt, query or credentials."""
    fields = {
        "time": "%START_TIME%",
        "method": "%REQ(:METHOD)%",
        "path": "%PATH(NQ)%",
        "tier": "%ROUTE_NAME%",
        "model": f"%DYNAMIC_METADATA({_METADATA}:model)%",
        "effort": "%REQ(X-REASONING-EFFORT)%",
        "session": f"%REQ({HEADER_SESSION.upper()})%",
        "prefix": f"%REQ({HEADER_PREFIX.upper()})%",
        "replica": "%UPSTREAM_HOST%",
        "status": "%RESPONSE_CODE%",
        "flags": "%RESPONSE_FLAGS%",
        "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
        "duration_ms": "%DURATION%",
        "request_bytes": "%BYTES_RECEIVED%",
        "response_bytes": "%BYTES_SENT%",
        "request_id": "%REQ(X-REQUEST-ID)%",
    }
    return {
        "name": "envoy.access_loggers.stdout",
        "typed_config": _any(
            "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog", log_format={"json_format": fields}
        ),
    }


def _virtual_hosts(gateway: StandaloneGateway) -> list[dict[str, Any]]:
    named = [tier for tier in gateway.tiers if tier.hostnames]
    hosts = [
        {
            "name": f"host-{tier.name}",
            "domains": [domain for host in tier.hostnames for domain in (host, f"{host}:*")],
            "routes": [_tier_route(tier, {"prefix": "/"})],
        }
        for tier in named
    ]
    return [*hosts, {"name": "pool", "domains": ["*"], "routes": _routes(gateway)}]


def _routes(gateway: StandaloneGateway) -> list[dict[str, Any]]:
    """First the tier a client names, then the model's, then the default for requests without a model."""
    default = gateway.tiers[0]
    by_header = [
        _tier_route(tier, {"prefix": "/", "headers": [{"name": HEADER_TIER, "string_match": {"exact": tier.name}}]})
        for tier in gateway.tiers
    ]
    unknown_tier = _fixed(
        "unknown-tier", {"prefix": "/", "headers": [{"name": HEADER_TIER, "present_match": True}]}, 404
    )
    names = ", ".join(tier.name for tier in gateway.tiers)
    unknown_tier["direct_response"]["body"] = {
        "inline_string": error_body(404, "NotFoundError", f"no such tier; {HEADER_TIER} may be: {names}")
    }
    models = dict.fromkeys(model for tier in gateway.tiers for model in tier.models)
    by_model = [_tier_route(tier, _model_match(model)) for tier in gateway.tiers for model in tier.models]
    unknown = _fixed("unknown-model", {"prefix": "/"}, 404)
    unknown["direct_response"]["body"] = {
        "inline_string": error_body(404, "NotFoundError", f"no such model; served here: {', '.join(models)}")
    }
    return [
        _models_route(tuple(models)),
        *by_header,
        unknown_tier,
        *by_model,
        _tier_route(default, _model_match("")),
        _tier_route(default, {"prefix": "/", "headers": [{"name": ":method", "string_match": {"exact": "GET"}}]}),
        unknown,
    ]


def _model_match(model: str) -> dict[str, Any]:
    matcher = {"filter": _METADATA, "path": [{"key": "model"}], "value": {"string_match": {"exact": model}}}
    return {"prefix": "/", "dynamic_metadata": [matcher]}


def _fixed(name: str, match: dict[str, Any], status: int) -> dict[str, Any]:
    return {
        "name": name,
        "match": match,
        "direct_response": {"status": status},
        "response_headers_to_add": [
            {
                "header": {"key": "content-type", "value": "application/json"},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }
        ],
    }


def _models_route(models: tuple[str, ...]) -> dict[str, Any]:
    """`GET /v1/models` for all tiers: one replica would list its own only."""
    match = {"path": "/v1/models", "headers": [{"name": ":method", "string_match": {"exact": "GET"}}]}
    route = _fixed("models", match, 200)
    entries = ", ".join(f'{{"id": "{model}", "object": "model", "owned_by": "reasoningpool"}}' for model in models)
    route["direct_response"]["body"] = {"inline_string": f'{{"object": "list", "data": [{entries}]}}'}
    return route


def _tier_route(tier: GatewayTier, match: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": tier.name,
        "match": match,
        "route": {
            "cluster": tier.name,
            # The budgets bound a request; the engine and the runtime enforce them. A cut stream is a lost answer.
            "timeout": "0s",
            "idle_timeout": "0s",
            "hash_policy": [
                {"header": {"header_name": HEADER_SESSION}, "terminal": True},
                {"header": {"header_name": HEADER_PREFIX}, "terminal": True},
                {"connection_properties": {"source_ip": True}},
            ],
            "retry_policy": {
                "retry_on": "connect-failure,refused-stream,reset-before-request",
                "num_retries": 2,
                "retry_host_predicate": [
                    {
                        "name": "envoy.retry_host_predicates.previous_hosts",
                        "typed_config": _any("envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"),
                    }
                ],
                "host_selection_retry_max_attempts": 3,
            },
        },
    }


def _cluster(tier: GatewayTier) -> dict[str, Any]:
    limits = {
        "max_connections": _MOST_REQUESTS,
        "max_pending_requests": _MOST_REQUESTS,
        "max_requests": _MOST_REQUESTS,
        "max_retries": _MOST_RETRIES,
    }
    endpoint = {"endpoint": {"address": _address(tier.endpoints_host, tier.port)}}
    return {
        "name": tier.name,
        "cluster_type": {
            "name": "envoy.cluster.dns",
            "typed_config": _any(
                "envoy.extensions.clusters.dns.v3.DnsCluster",
                dns_refresh_rate="2s",
                # One address per pod, whichever family the cluster has.
                dns_lookup_family="V4_PREFERRED",
                all_addresses_in_single_endpoint=False,
            ),
        },
        "connect_timeout": "1s",
        "per_connection_buffer_limit_bytes": tier.most_request_bytes,
        "circuit_breakers": {"thresholds": [limits]},
        "load_balancing_policy": {"policies": [{"typed_extension_config": _bounded_maglev()}]},
        "load_assignment": {"cluster_name": tier.name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _bounded_maglev() -> dict[str, Any]:
    return {
        "name": "envoy.load_balancing_policies.maglev",
        "typed_config": _any(
            "envoy.extensions.load_balancing_policies.maglev.v3.Maglev",
            consistent_hashing_lb_config={"hash_balance_factor": _LOAD_BOUND_PERCENT},
        ),
    }


def _health_listener(gateway: StandaloneGateway) -> dict[str, Any]:
    """Readiness for the kubelet, away from the requests' port: 503 once `healthcheck/fail` was asked for."""
    health = _any(
        "envoy.extensions.filters.http.health_check.v3.HealthCheck",
        pass_through_mode=False,
        headers=[{"name": ":path", "string_match": {"exact": "/readyz"}}],
    )
    manager = _any(
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="health",
        http_filters=[{"name": "envoy.filters.http.health_check", "typed_config": health}, _router_filter()],
        route_config={"virtual_hosts": [{"name": "none", "domains": ["*"], "routes": []}]},
    )
    return {
        "name": "health",
        "address": _address(gateway.listen_address, gateway.health_port),
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
