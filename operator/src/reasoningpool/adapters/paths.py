"""URL paths of kinds and objects."""

from __future__ import annotations

from urllib.parse import quote

from reasoningpool.objects import KINDS, Kind, Kinds, ObjectKey


def group_path(api_version: str) -> str:
    """URL path of one version of an API group; what is served there lists its resources."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def collection_path(kind: Kind, namespace: str | None) -> str:
    """URL path of a kind, in one namespace or in all."""
    scope = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{group_path(kind.api_version)}{scope}/{kind.plural}"


def object_path(key: ObjectKey, kinds: Kinds = KINDS) -> str:
    """URL path of one object. Raises UnknownKind for a kind that the table does not declare."""
    return f"{collection_path(kinds.of(key), key.namespace)}/{quote(key.name, safe='')}"
