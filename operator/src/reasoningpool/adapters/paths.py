"""URL paths of kinds and objects."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from reasoningpool.api import names
from reasoningpool.objects import ObjectKey

# Server-side apply does not ask for discovery when the kinds are known.
_PLURALS: Final = {
    names.KIND: names.PLURAL,
    "Endpoints": "endpoints",
    "NetworkPolicy": "networkpolicies",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "Ingress": "ingresses",
}


def plural(kind: str) -> str:
    """The resource name of a kind."""
    return _PLURALS.get(kind) or kind.lower() + "s"


def collection_path(api_version: str, kind: str, namespace: str | None) -> str:
    """URL path of a kind, in one namespace or in all."""
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    scope = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}{scope}/{plural(kind)}"


def object_path(key: ObjectKey) -> str:
    """URL path of one object."""
    return f"{collection_path(key.api_version, key.kind, key.namespace)}/{quote(key.name, safe='')}"
