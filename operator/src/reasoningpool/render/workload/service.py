"""The two Services of a tier.

The server's defaults are written out, so that a diff against the cluster shows nothing that nobody chose.
IP families stay out: they are the cluster's choice.
"""

from __future__ import annotations

from typing import Any

from reasoningpool.api import names
from reasoningpool.objects import Manifest
from reasoningpool.render.metadata import PoolIdentity, object_meta, tier_labels

ROUTABLE = "true"


def service(pool: PoolIdentity, tier: str) -> Manifest:
    """The Service clients use: ready pods that carry the routing label."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": object_meta(pool, names.child_name(pool.name, tier), tier_labels(pool, tier)),
        "spec": {
            "type": "ClusterIP",
            "selector": {**names.tier_selector(pool.name, tier), names.LABEL_ROUTABLE: ROUTABLE},
            "ports": _ports(),
            "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster",
            "publishNotReadyAddresses": False,
        },
    }


def headless_service(pool: PoolIdentity, tier: str) -> Manifest:
    """The Service that gives pods their DNS names. It lists pods that are not ready too: never route by it."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": object_meta(pool, names.headless_service_name(pool.name, tier), tier_labels(pool, tier)),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "selector": names.tier_selector(pool.name, tier),
            "ports": _ports(),
            "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster",
            "publishNotReadyAddresses": True,
        },
    }


def _ports() -> list[dict[str, Any]]:
    return [
        {
            "name": names.ENGINE_PORT_NAME,
            "port": names.ENGINE_PORT,
            "targetPort": names.ENGINE_PORT_NAME,
            "protocol": "TCP",
            "appProtocol": "http",
        }
    ]
