"""Labels of the gateway's objects and pods."""

from __future__ import annotations

from typing import Final

from reasoningpool.api import names
from reasoningpool.render.metadata import PoolIdentity, pool_labels

COMPONENT: Final = "gateway"
_APP_NAME: Final = "envoy"


def gateway_labels(pool: PoolIdentity) -> dict[str, str]:
    """Labels of the gateway's objects: the pool's children, of none of its tiers."""
    return {
        **pool_labels(pool),
        names.LABEL_NAME: _APP_NAME,
        names.LABEL_INSTANCE: names.gateway_name(pool.name),
        names.LABEL_COMPONENT: COMPONENT,
    }


def gateway_selector(pool: str) -> dict[str, str]:
    """Labels that select the gateway's pods; immutable in the Deployment."""
    return {names.LABEL_GATEWAY: pool}


def pod_labels(pool: PoolIdentity) -> dict[str, str]:
    """Labels of the gateway's pods. Without the pool's: by those the operator watches engines."""
    return {
        names.LABEL_NAME: _APP_NAME,
        names.LABEL_INSTANCE: names.gateway_name(pool.name),
        names.LABEL_COMPONENT: COMPONENT,
        names.LABEL_PART_OF: pool.name,
        **gateway_selector(pool.name),
    }
