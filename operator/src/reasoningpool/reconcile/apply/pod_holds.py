"""Owner references to the pool on pods that are without a StatefulSet for a moment.

While a StatefulSet is replaced its pods belong to nobody. Should the operator die then, and the pool be deleted,
they would keep their GPUs for ever. So beforehand each pod is given the pool as a second owner, which is not its
controller: the garbage collector removes the pod with the pool, whatever becomes of the operator, and by uid, so that
no pod of somebody else is touched. Once a StatefulSet has adopted the pod, the reference is taken off again: with it
the pod would outlive its StatefulSet.
"""

from __future__ import annotations

import logging
from typing import Final

from reasoningpool.adapters.errors import Conflict, NotFound
from reasoningpool.adapters.gate import Priority
from reasoningpool.adapters.kube import Kube
from reasoningpool.api import names
from reasoningpool.objects import Manifest, ObjectKey, controller_of, controller_uid, ordinal
from reasoningpool.objects.kinds import POD
from reasoningpool.reconcile.apply.writer import Writer
from reasoningpool.reconcile.store import PoolName, Store, log_fields

log = logging.getLogger(__name__)

_IDENTITY: Final = ("apiVersion", "kind", "name", "uid")


class PodHolds:
    """Gives pods the pool as an owner, and takes it off."""

    def __init__(self, kube: Kube, store: Store, writer: Writer) -> None:
        self._kube = kube
        self._store = store
        self._writer = writer

    async def take(self, pool: PoolName, stateful_set: Manifest, uid: str | None) -> None:
        """Hold the pods of the StatefulSet with this uid, and those that one of this manifest would adopt."""
        owner = controller_of(stateful_set)
        if owner is None:
            return
        for pod in self._store.pods(pool):
            ours = (uid is not None and controller_uid(pod) == uid) or is_left_behind(pod, stateful_set)
            held = any(entry["uid"] == owner["uid"] for entry in pod["metadata"].get("ownerReferences") or ())
            if ours and not held:
                reference = {field: owner[field] for field in _IDENTITY}
                await self._apply(pool, ObjectKey.of(pod), pod["metadata"]["uid"], [reference])

    async def release(self, pool: PoolName, uid: str) -> None:
        """Let go of the pods that the StatefulSet with this uid controls."""
        for key, record in self._store.held_pods(pool):
            if record.controller == uid:
                await self._apply(pool, key, record.uid, [])

    async def _apply(self, pool: PoolName, key: ObjectKey, uid: str, references: list[Manifest]) -> None:
        meta = {"namespace": key.namespace, "name": key.name, "uid": uid}
        self._writer.check()
        try:
            answer = await self._kube.apply(
                {
                    "apiVersion": POD.api_version,
                    "kind": POD.kind,
                    "metadata": meta | ({"ownerReferences": references} if references else {}),
                },
                manager=names.HOLD_FIELD_MANAGER,
                priority=Priority.URGENT,
            )
        except (NotFound, Conflict):
            log.debug("%s is gone or another pod by now", key, extra=log_fields(pool))
        else:
            self._store.upsert(answer, notify=False)


def is_left_behind(pod: Manifest, stateful_set: Manifest) -> bool:
    """Whether a StatefulSet of this manifest would adopt the pod: it has no controller, and its labels and name fit."""
    meta, selector = pod["metadata"], stateful_set["spec"]["selector"]["matchLabels"]
    return (
        selector.items() <= (meta.get("labels") or {}).items()
        and controller_uid(pod) is None
        and not meta.get("deletionTimestamp")
        and ordinal(meta["name"], stateful_set["metadata"]["name"]) is not None
    )
