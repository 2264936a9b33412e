"""Keeps store and tasks true to the cluster where watches alone cannot: at the start, and after gaps.

A watch that starts anew does not say what was deleted in between, and one that is open but silent says nothing
at all. So everything is listed once in full before any pool is touched, and compared by metadata after each gap and
from time to time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from reasoningpool.adapters.errors import Forbidden, KubeError, NotFound, NotInstalled
from reasoningpool.adapters.gate import Priority
from reasoningpool.adapters.kube import Kube
from reasoningpool.objects import Kind, Manifest, ObjectKey
from reasoningpool.objects.kinds import POOL
from reasoningpool.reconcile.lists import SELECTOR, list_kind
from reasoningpool.reconcile.optional_kinds import OptionalKinds
from reasoningpool.reconcile.pools import Pools
from reasoningpool.reconcile.store import PoolName, Store

log = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS: Final = 1.0
_MAX_RETRY_SECONDS: Final = 30.0
# What a watch may still be about to deliver when a list shows it.
_LAG_SECONDS: Final = 3.0


@dataclass(slots=True)
class Drift:
    """What a comparison found that the watches had not told."""

    missed: int = 0
    ghosts: int = 0


class Observer:
    """Lists for one namespace, several, or (None) the whole cluster."""

    def __init__(
        self,
        kube: Kube,
        store: Store,
        pools: Pools,
        namespaces: tuple[str, ...] | None,
        *,
        lag: float = _LAG_SECONDS,
    ) -> None:
        self._kube = kube
        self._lag = lag
        self._store = store
        self._pools = pools
        self._scopes: tuple[str | None, ...] = namespaces if namespaces is not None else (None,)
        self._gap = asyncio.Event()
        # Why the first list is not in yet, for the readiness endpoint.
        self.trouble = "listing the objects of all pools"

    async def first_list(self, optional: OptionalKinds) -> None:
        """List until it succeeds; then the store is whole and the pools' tasks may work.

        Optional kinds that are missing or may not be read hold up nothing.
        """
        delay = _FIRST_RETRY_SECONDS
        while not self._store.synced:
            try:
                await self._list_children()
                await optional.look()
                await self._list_pools()
            except NotInstalled as error:
                self.trouble = error.message
                log.warning("%s; waiting for it", self.trouble)
            except KubeError as error:
                self.trouble = error.message
                log.warning("listing failed, next try in %.0f s: %s", delay, error.message)
            else:
                self._store.synced, self.trouble = True, ""
                log.info("%d pools and %d objects of theirs found", len(self._pools), self._store.count())
                self._pools.start()
                return
            await asyncio.sleep(delay)
            delay = min(delay * 2, _MAX_RETRY_SECONDS)

    def gap(self) -> None:
        """A watch had expired and is begun anew: what was deleted in between has to be looked for."""
        self._gap.set()

    async def run(self, interval: float) -> None:
        """Compare for ever."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval * random.uniform(0.8, 1.2)):
                    await self._gap.wait()
                # Watches mostly expire together; and a server that has every watch expire is not asked without pause.
                await asyncio.sleep(self._lag)
            self._gap.clear()
            try:
                await self.compare()
            except KubeError as error:
                log.warning("comparing with the cluster failed: %s", error.message)
                await asyncio.sleep(_MAX_RETRY_SECONDS)
                self._gap.set()

    async def compare(self) -> Drift:
        """List metadata only, and mend what differs: deleted objects are dropped, missed changes read."""
        drift = Drift()
        for kind in self._store.kinds.watched:
            if not self._store.is_fed(kind):
                continue
            try:
                await self._compare_kind(kind, drift)
            except (Forbidden, NotInstalled):
                if not kind.optional:  # otherwise its watch meets the same, and `OptionalKinds` acts on it
                    raise
        await self._compare_pools(drift)
        if drift.missed or drift.ghosts:
            log.warning("watches missed %d changes and %d deletions", drift.missed, drift.ghosts)
        return drift

    # -- in full ---------------------------------------------------------------------------------------------------

    async def _list_children(self) -> None:
        for kind in self._store.kinds.watched:
            if kind.optional:
                continue
            try:
                await list_kind(self._kube, self._store, kind, self._scopes)
            except NotInstalled as error:
                message = f"the cluster does not serve {kind}, which the operator needs"
                raise NotInstalled(message, status=error.status, reason=error.reason) from error

    async def _list_pools(self) -> None:
        try:
            for scope in self._scopes:
                async for page in self._kube.pages(POOL, namespace=scope):
                    for item in page.items:
                        self._pools.seen(item)
        except NotInstalled as error:
            message = f"the CustomResourceDefinition {POOL.plural}.{POOL.group} is not installed"
            raise NotInstalled(message, status=error.status, reason=error.reason) from error

    # -- by metadata -----------------------------------------------------------------------------------------------

    async def _compare_kind(self, kind: Kind, drift: Drift) -> None:
        for scope in self._scopes:
            newest = self._store.newest(kind, scope)
            listed, version = await self._metadata(kind, scope, SELECTOR)
            if version < newest:
                self._went_back(kind, scope, newest, version)
            uids = {item["metadata"]["uid"] for item in listed}
            for pool, key, record in tuple(self._store.known(kind)):
                in_scope = scope is None or key.namespace == scope
                if in_scope and record.uid not in uids and record.version <= version:
                    drift.ghosts += 1
                    self._store.remove(pool, key, record.uid, version=version)
            behind = [item for item in listed if self._store.is_behind(item)]
            if behind:
                await asyncio.sleep(self._lag)
                await self._catch_up([item for item in behind if self._store.is_behind(item)], drift)

    def _went_back(self, kind: Kind, scope: str | None, newest: int, version: int) -> None:
        """A list is newer than all that was seen before it, unless the cluster's store was set back.

        Then what is known is of another history: everything counts as missed, and all pools look again.
        """
        log.warning(
            "the API server's resourceVersions went back from %d to %d (an etcd restore?); reading every %s again",
            newest,
            version,
            kind.kind,
        )
        self._store.distrust(kind, scope)
        self._pools.wake_all()

    async def _catch_up(self, behind: Iterable[Manifest], drift: Drift) -> None:
        for item in behind:
            try:
                live = await self._kube.get(ObjectKey.of(item), priority=Priority.BACKGROUND)
            except NotFound:
                continue
            if self._store.upsert(live):
                drift.missed += 1

    async def _compare_pools(self, drift: Drift) -> None:
        for scope in self._scopes:
            known = {name for name, _ in self._pools.names() if scope is None or name.namespace == scope}
            started = time.monotonic()
            listed, _ = await self._metadata(POOL, scope, "")
            there = {PoolName(item["metadata"]["namespace"], item["metadata"]["name"]) for item in listed}
            for name in known - there:
                self._pools.wake(name, urgent=True)  # its GET decides
            uids = dict(self._pools.names())
            for item in listed:
                meta = item["metadata"]
                name = PoolName(meta["namespace"], meta["name"])
                if uids.get(name) != meta["uid"] and not meta.get("deletionTimestamp"):
                    drift.missed += 1
                    with contextlib.suppress(NotFound):
                        self._pools.seen(await self._kube.get(ObjectKey(POOL.api_version, POOL.kind, *name)))
            log.debug("compared %d pools in %.1f s", len(listed), time.monotonic() - started)

    async def _metadata(self, kind: Kind, scope: str | None, selector: str) -> tuple[list[Manifest], int]:
        items: list[Manifest] = []
        version = 0
        async for page in self._kube.pages(kind, namespace=scope, label_selector=selector, metadata_only=True):
            items += [_essence(item) for item in page.items]
            version = version or int(page.version or 0)
        return items, version


def _essence(item: Manifest) -> Manifest:
    # managedFields are most of an object's metadata, and a list may be of ten thousand objects.
    wanted = ("uid", "name", "namespace", "resourceVersion", "labels", "deletionTimestamp")
    meta = {field: item["metadata"][field] for field in wanted if field in item["metadata"]}
    return {"apiVersion": item["apiVersion"], "kind": item["kind"], "metadata": meta}
