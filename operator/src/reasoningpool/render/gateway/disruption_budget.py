"""How many of the gateway's pods a node drain may take away at once."""

from __future__ import annotations

from reasoningpool.api import names
from reasoningpool.objects import Manifest
from reasoningpool.render.gateway.metadata import gateway_labels, gateway_selector
from reasoningpool.render.metadata import PoolIdentity, object_meta


def gateway_disruption_budget(pool: PoolIdentity) -> Manifest:
    """One at a time; a gateway of a single pod can still be moved off a node."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": object_meta(pool, names.gateway_name(pool.name), gateway_labels(pool)),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": gateway_selector(pool.name)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
