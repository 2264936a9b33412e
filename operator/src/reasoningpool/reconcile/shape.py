"""Short digests that answer "has it changed?" without keeping the objects."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

# What somebody's edit of an object would change; resourceVersion, generation and managedFields follow from it,
# and status is not ours to apply.
_META_THAT_COUNTS: Final = ("labels", "annotations", "ownerReferences", "finalizers", "deletionTimestamp")


def digest(value: object) -> bytes:
    """Digest of any JSON value, independent of the order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def shape(live: Mapping[str, Any]) -> bytes:
    """Digest of what applies can change in an object; unchanged by status writes.

    A StatefulSet's replicas are left out: they have a field manager of their own and are compared as a number.
    """
    meta = live["metadata"]
    body = {field: value for field, value in live.items() if field not in {"metadata", "status", "kind", "apiVersion"}}
    if live.get("kind") == "StatefulSet" and "spec" in body:
        body["spec"] = {field: value for field, value in body["spec"].items() if field != "replicas"}
    body["metadata"] = {field: meta.get(field) for field in _META_THAT_COUNTS}
    return digest(body)
