"""Small objects for the tests of this package."""

from __future__ import annotations

import itertools
from typing import Any

from reasoningpool.api import names

_versions = itertools.count(100)


def meta(name: str, *, uid: str = "", version: int | None = None, pool: str = "p", **more: Any) -> dict[str, Any]:
    """Metadata of an object of pool `p` as the API server would answer it."""
    return {
        "name": name,
        "namespace": "llm",
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(next(_versions) if version is None else version),
        "labels": {**names.pool_selector(pool), **more.pop("labels", {})},
        **more,
    }


def stateful_set(name: str = "p-a", *, replicas: int | None = None, image: str = "v1", **more: Any) -> dict[str, Any]:
    """A StatefulSet of tier `a`."""
    spec: dict[str, Any] = {
        "selector": {"matchLabels": names.tier_selector("p", "a")},
        "template": {"spec": {"containers": [{"name": "engine", "image": image}]}},
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta(name, **more), "spec": spec}


def pod(name: str, *, controller: str | None = None, **more: Any) -> dict[str, Any]:
    """A pod of tier `a`."""
    labels = names.tier_selector("p", "a")
    owners = {"ownerReferences": [{"uid": controller, "controller": True}]} if controller else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta(name, labels=labels, **owners, **more)}


def pool(*, uid: str = "uid-p", generation: int = 1, **more: Any) -> dict[str, Any]:
    """The pool itself."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": "p", "namespace": "llm", "uid": uid, "generation": generation, **more},
        "spec": {},
    }
