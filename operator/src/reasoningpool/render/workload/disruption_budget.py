"""How many replicas of a tier a node drain may take away at once."""

from __future__ import annotations

from reasoningpool.api import names
from reasoningpool.objects import Manifest
from reasoningpool.render.metadata import PoolIdentity, object_meta, tier_labels


def disruption_budget(pool: PoolIdentity, tier: str, max_unavailable: int) -> Manifest:
    """A budget by `maxUnavailable`, so that a tier of one replica can still be moved off a node.

    Pods that do not serve may always be evicted: they protect nobody and would block the drain.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": object_meta(pool, names.child_name(pool.name, tier), tier_labels(pool, tier)),
        "spec": {
            "maxUnavailable": max_unavailable,
            "selector": {"matchLabels": names.tier_selector(pool.name, tier)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
