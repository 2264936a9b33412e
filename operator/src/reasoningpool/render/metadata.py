"""Names, labels and owner references of rendered objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reasoningpool.api import names


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolIdentity:
    """The ReasoningPool that owns the rendered objects."""

    name: str
    namespace: str
    uid: str


def owner_reference(pool: PoolIdentity) -> dict[str, Any]:
    """The reference by which Kubernetes removes a child with its pool."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": pool.name,
        "uid": pool.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pool_labels(pool: PoolIdentity) -> dict[str, str]:
    """Labels of every object of a pool."""
    return {
        names.LABEL_NAME: names.APP_NAME,
        names.LABEL_INSTANCE: pool.name,
        names.LABEL_PART_OF: pool.name,
        **names.pool_selector(pool.name),
    }


def tier_labels(pool: PoolIdentity, tier: str) -> dict[str, str]:
    """Labels of every object of a tier."""
    return {
        **pool_labels(pool),
        names.LABEL_INSTANCE: names.child_name(pool.name, tier),
        names.LABEL_COMPONENT: names.ENGINE_CONTAINER,
        **names.tier_selector(pool.name, tier),
    }


def object_meta(
    pool: PoolIdentity, name: str, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Metadata of a child."""
    meta: dict[str, Any] = {
        "name": name,
        "namespace": pool.namespace,
        "labels": dict(sorted(labels.items())),
    }
    if pool.uid:  # a pool in a file has none, and an owner without one cannot be applied
        meta["ownerReferences"] = [owner_reference(pool)]
    if annotations:
        meta["annotations"] = dict(sorted(annotations.items()))
    return meta
