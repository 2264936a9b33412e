"""Lists in full: what fills the store before, and besides, the watches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from reasoningpool.adapters.kube import Kube
from reasoningpool.api import names
from reasoningpool.objects import Kind
from reasoningpool.reconcile.store import Store

# The label that all children and pods carry.
SELECTOR: Final = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"

# Namespaces; (None,) is the whole cluster.
Scopes = Iterable[str | None]


async def list_kind(kube: Kube, store: Store, kind: Kind, scopes: Scopes) -> None:
    """Put every object of one kind into the store. Raises KubeError."""
    for scope in scopes:
        async for page in kube.pages(kind, namespace=scope, label_selector=SELECTOR):
            for item in page.items:
                store.upsert(item, notify=False)
