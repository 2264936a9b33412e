"""Sends manifests of one pool's children, and makes sure first that what they meet is the pool's.

Three things can be in the way of an apply, apart from a manifest that is wrong: an object of somebody else; an object
of ours that has lost our labels, so that the store does not know it; and somebody's edit that becomes invalid
together with ours, since lists are merged by key (a Service's port whose number was changed by hand is a port
beside ours, with the same name).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from reasoningpool.adapters.errors import Conflict, KubeError, NotFound, NotLeading, Permanent
from reasoningpool.adapters.gate import Priority
from reasoningpool.adapters.kube import Kube
from reasoningpool.api import names
from reasoningpool.objects import Manifest, ObjectKey, controller_of, controller_uid
from reasoningpool.reconcile.ownership import taken_over
from reasoningpool.reconcile.shape import shape
from reasoningpool.reconcile.store import PoolName, Store, log_fields

log = logging.getLogger(__name__)

_TRIES_TO_OWN: Final = 5


class Rediscovered(Exception):  # noqa: N818
    """An object of ours is there that the store did not know; it does now, and the pool has been woken."""


class Writer:
    """`may_write` is asked before every single write, so that nothing is read or waited for in vain.

    What counts is asked again by the transport, in the moment in which a request leaves.
    """

    def __init__(self, kube: Kube, store: Store, may_write: Callable[[], bool]) -> None:
        self._kube = kube
        self._store = store
        self._may_write = may_write

    def check(self) -> None:
        """Raise NotLeading unless writing is allowed at this moment."""
        if not self._may_write():
            raise NotLeading

    async def send(self, pool: PoolName, manifest: Manifest, manager: str, priority: Priority, why: str) -> Manifest:
        """Apply a whole manifest; answers the object as it is now. The store knows it then.

        What the apply has changed is logged with its reason, `why`.

        Raises `Rediscovered` for a StatefulSet that has to be planned anew, by its live pod template.
        """
        key = ObjectKey.of(manifest)
        # Of an object that we have not seen to be the pool's, we do not take fields by force.
        record = self._store.record(pool, key)
        known = record is not None and record.belongs_to(controller_uid(manifest))
        if not known and self._store.kinds.of(key).sparse:
            await self.find(manifest)
        self.check()
        try:
            answer = await self._kube.apply(manifest, manager=manager, force=known, priority=priority)
        except Conflict as conflict:
            if known or not conflict.field_managers:
                raise
            await self._rediscover(pool, manifest, conflict)
            answer = await self._kube.apply(manifest, manager=manager, priority=priority)
        except Permanent as error:
            if not error.invalid_fields:
                raise
            if not known:
                await self._rediscover(pool, manifest, error)
            await self._take_over(manifest, error)
            answer = await self._kube.apply(manifest, manager=manager, priority=priority)
        if record is None or shape(answer) != record.shape:
            log.info("%s %s: %s", key, "created" if record is None else "changed", why, extra=log_fields(pool))
        self._store.upsert(answer, notify=False)
        return answer

    async def find(self, manifest: Manifest) -> Manifest | None:
        """The object of this name if it is the pool's, None if there is none; refuses somebody else's."""
        try:
            live = await self._kube.get(ObjectKey.of(manifest))
        except NotFound:
            return None
        if not _is_of_pool(live, manifest):
            owner = _controller(live)
            raise _foreign(f"it belongs to {owner}" if owner else "it has no owner")
        return live

    async def _rediscover(self, pool: PoolName, manifest: Manifest, error: KubeError) -> None:
        """Take in an object of ours that has lost our labels; the error stands if there is no such thing."""
        live = await self.find(manifest)
        if live is None:
            raise error
        log.info("%s lost its labels; restoring them", ObjectKey.of(live), extra=log_fields(pool))
        is_set = manifest["kind"] == "StatefulSet"
        self._store.upsert(live, notify=is_set, pool=pool)
        if is_set:
            raise Rediscovered

    async def _take_over(self, manifest: Manifest, error: Permanent) -> None:
        """Own what others have put where the object is invalid, so that the next apply removes it."""
        key = ObjectKey.of(manifest)

        def fields(live: Manifest) -> list[Manifest] | None:
            return taken_over(live, error.invalid_fields) if _is_of_pool(live, manifest) else None

        if await self.own(key, fields) is None:
            raise error
        log.info("%s: an edit made it invalid; undoing it (%s)", key, error.message)

    async def own(self, key: ObjectKey, fields: Callable[[Manifest], list[Manifest] | None]) -> Manifest | None:
        """Set an object's managedFields to what `fields` makes of it as it is; None if that is None or it is gone."""
        for tries_left in reversed(range(_TRIES_TO_OWN)):
            try:
                live = await self._kube.get(key)
            except NotFound:
                return None
            owned = fields(live)
            if owned is None:
                return None
            self.check()
            # With the version that was read: a controller may write status in between.
            meta = {"resourceVersion": live["metadata"]["resourceVersion"], "managedFields": owned}
            try:
                return await self._kube.merge(
                    key, {"metadata": meta}, manager=names.FIELD_MANAGER, priority=Priority.URGENT
                )
            except Conflict:
                if not tries_left:
                    raise
        return None


def _foreign(why: str) -> Permanent:
    """The refusal to touch an object of this name that is not ours."""
    message = (
        f"exists already and does not belong to this pool ({why}); delete it, or give the pool or tier another name"
    )
    return Permanent(message, status=409, reason="AlreadyExists")


def _is_of_pool(live: Manifest, manifest: Manifest) -> bool:
    owner = controller_uid(manifest)
    return owner is not None and controller_uid(live) == owner


def _controller(live: Manifest) -> str:
    owner = controller_of(live)
    return "" if owner is None else f"{owner['kind']} {owner['name']}"
