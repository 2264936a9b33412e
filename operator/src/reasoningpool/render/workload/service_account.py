"""The ServiceAccount of a pool's pods."""

from __future__ import annotations

from reasoningpool.objects import Manifest
from reasoningpool.render.metadata import PoolIdentity, object_meta, pool_labels


def service_account_name(pool: str) -> str:
    """Name of a pool's ServiceAccount.

    >>> service_account_name("qwen")
    'qwen-engine'
    """
    return f"{pool}-engine"


def service_account(pool: PoolIdentity) -> Manifest:
    """An account of the pool's own that no role is bound to and whose token no pod gets."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": object_meta(pool, service_account_name(pool.name), pool_labels(pool)),
        "automountServiceAccountToken": False,
    }
