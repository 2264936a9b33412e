"""Every name the operator puts on an object, in one place, so that selectors and metadata cannot drift."""

from __future__ import annotations

from typing import Final

from reasoningpool.objects.kinds import POOL

GROUP: Final = POOL.group
VERSION: Final = POOL.version
API_VERSION: Final = POOL.api_version
KIND: Final = POOL.kind
PLURAL: Final = POOL.plural
SINGULAR: Final = "reasoningpool"
SHORT_NAME: Final = "rp"

FIELD_MANAGER: Final = "reasoningpool"
# Replicas have a manager of their own, so that an autoscaler can take the number over (ADR 3).
SCALE_FIELD_MANAGER: Final = "reasoningpool-scale"
# So have the labels that the operator sets on pods, which come from the StatefulSet's template.
LABEL_FIELD_MANAGER: Final = "reasoningpool-label"
# So has the owner reference that holds pods while their StatefulSet is replaced.
HOLD_FIELD_MANAGER: Final = "reasoningpool-hold"

# Kubernetes' recommended labels.
LABEL_NAME: Final = "app.kubernetes.io/name"
LABEL_INSTANCE: Final = "app.kubernetes.io/instance"
LABEL_COMPONENT: Final = "app.kubernetes.io/component"
LABEL_PART_OF: Final = "app.kubernetes.io/part-of"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "reasoningpool"
APP_NAME: Final = "vllm"

LABEL_POOL: Final = f"{GROUP}/pool"
LABEL_TIER: Final = f"{GROUP}/tier"
# On pods only and never in the StatefulSet's selector: taking it off takes a pod out of routing.
LABEL_ROUTABLE: Final = f"{GROUP}/routable"

# On the gateway's pods, which carry none of the engines' labels: the value is the pool's name.
LABEL_GATEWAY: Final = f"{GROUP}/gateway"

# On the pod template: changes exactly when what the pods run changes.
ANNOTATION_REVISION: Final = f"{GROUP}/revision"

ENGINE_CONTAINER: Final = "engine"
ENGINE_PORT: Final = 8000
ENGINE_PORT_NAME: Final = "http"

# Pool and tier names together, so that the longest child name (a pod's controller-revision-hash label
# value, "<name>-<10 characters>", 63 at most) stays within Kubernetes' limits.
MAX_NAME_LENGTH: Final = 45
# Suffixes of other children: a tier of such a name would share one with another pool (ADR 6).
RESERVED_TIER_NAMES: Final = ("pods", "gateway", "endpoints")


def child_name(pool: str, tier: str) -> str:
    """Name of a tier's StatefulSet, Service and PodDisruptionBudget."""
    return f"{pool}-{tier}"


def headless_service_name(pool: str, tier: str) -> str:
    """Name of the Service that gives a tier's pods their DNS names."""
    return f"{child_name(pool, tier)}-pods"


def runtime_config_name(pool: str, tier: str) -> str:
    """Name of the ConfigMap that the request runtime of a tier reads."""
    return f"{child_name(pool, tier)}-runtime"


def gateway_name(pool: str) -> str:
    """Name of the gateway's Deployment, Service, ConfigMap and PodDisruptionBudget."""
    return f"{pool}-gateway"


def endpoints_service_name(pool: str, tier: str) -> str:
    """Name of the headless Service that lists the pods of a tier that may get requests."""
    return f"{child_name(pool, tier)}-endpoints"


def pool_selector(pool: str) -> dict[str, str]:
    """Labels that select every object of a pool."""
    return {LABEL_MANAGED_BY: MANAGED_BY, LABEL_POOL: pool}


def tier_selector(pool: str, tier: str) -> dict[str, str]:
    """Labels a tier's StatefulSet selects its pods by; immutable, so nothing that may change belongs here."""
    return {LABEL_POOL: pool, LABEL_TIER: tier}
