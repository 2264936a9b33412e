"""The gateway's Service, which is the pool's URL, and the Services by which Envoy finds the pods of each tier.

The server's defaults are written out, as in the tiers' Services.
"""

from __future__ import annotations

from typing import Final

from reasoningpool.api import names
from reasoningpool.objects import Manifest
from reasoningpool.render.gateway.metadata import gateway_labels, gateway_selector
from reasoningpool.render.metadata import PoolIdentity, object_meta
from reasoningpool.render.workload.service import ROUTABLE
from reasoningpool.resolution.types import EffectiveGateway

# Named, so that the container's port may change without the Service's.
REQUESTS_PORT_NAME: Final = "http"


def gateway_url(pool: str, namespace: str) -> str:
    """The base URL for clients in the cluster, as OpenAI's client libraries take it.

    >>> gateway_url("qwen", "llm")
    'http://qwen-gateway.llm.svc/v1'
    """
    return f"http://{names.gateway_name(pool)}.{namespace}.svc/v1"


def gateway_service(pool: PoolIdentity, gateway: EffectiveGateway) -> Manifest:
    """Ready pods of the gateway under one name."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": object_meta(pool, names.gateway_name(pool.name), gateway_labels(pool)),
        "spec": {
            "type": str(gateway.service_type),
            "selector": gateway_selector(pool.name),
            "ports": [
                {
                    "name": REQUESTS_PORT_NAME,
                    "port": 80,
                    "targetPort": REQUESTS_PORT_NAME,
                    "protocol": "TCP",
                    "appProtocol": "http",
                }
            ],
            "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster",
        },
    }


def endpoints_service(pool: PoolIdentity, tier: str) -> Manifest:
    """Resolves to the addresses of a tier's pods that are ready and carry the routing label."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": object_meta(pool, names.endpoints_service_name(pool.name, tier), gateway_labels(pool)),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "selector": {**names.tier_selector(pool.name, tier), names.LABEL_ROUTABLE: ROUTABLE},
            "ports": [
                {
                    "name": names.ENGINE_PORT_NAME,
                    "port": names.ENGINE_PORT,
                    "targetPort": names.ENGINE_PORT_NAME,
                    "protocol": "TCP",
                    "appProtocol": "http",
                }
            ],
            "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster",
        },
    }
