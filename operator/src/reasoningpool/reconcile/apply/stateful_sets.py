"""How StatefulSets come into being, are scaled, and are replaced under their running pods.

Two managers apply to them: the main one everything but the number of replicas, the scale manager the number (ADR 3).
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import Final

from reasoningpool.adapters.errors import Conflict, Forbidden, NotFound, Permanent, Transient
from reasoningpool.adapters.gate import Priority
from reasoningpool.adapters.kube import Kube
from reasoningpool.api import names
from reasoningpool.objects import Manifest, ObjectKey, controller_uid, ordinal
from reasoningpool.planning.actions import Apply, Scale
from reasoningpool.reconcile.apply.execution import Execution
from reasoningpool.reconcile.apply.pod_holds import PodHolds, is_left_behind
from reasoningpool.reconcile.apply.writer import Writer
from reasoningpool.reconcile.memory import Begun, Scaled
from reasoningpool.reconcile.ownership import disentangled
from reasoningpool.reconcile.store import Record, Store, log_fields

log = logging.getLogger(__name__)

GONE_TIMEOUT_SECONDS: Final = 30.0
_GONE_POLL_SECONDS: Final = 0.2


class WaitsFor(Permanent):
    """Not sent, since another object of the pool is refused; `cause` says which."""

    def __init__(self, cause: ObjectKey) -> None:
        super().__init__(f"waits for {cause.kind} {cause.name}")
        self.cause = cause


class StatefulSets:
    """Applies StatefulSets. `gone_timeout`: seconds to wait for the deletion of one that is replaced."""

    def __init__(self, kube: Kube, store: Store, writer: Writer, *, gone_timeout: float) -> None:
        self._kube = kube
        self._store = store
        self._writer = writer
        self._gone_timeout = gone_timeout
        self._holds = PodHolds(kube, store, writer)

    async def apply(self, execution: Execution, apply: Apply, scale: Scale | None, wanted: bytes) -> None:
        """Bring one StatefulSet to what is wanted, its number of replicas too unless `scale` is None.

        What can wait for other pools' engines goes into `execution.deferred`.
        """
        key = ObjectKey.of(apply.manifest)
        record = self._store.record(execution.pool, key)
        if record is None:
            await self._make(execution, apply, scale, key, wanted)
            return
        if not record.belongs_to(controller_uid(apply.manifest)):
            await self._writer.find(apply.manifest)  # refuses it; else it has just become ours, which is an event
            return
        await self._holds.release(execution.pool, record.uid)
        if record.entangled and execution.memory.begun.get(key) != Begun(record.uid, wanted):
            await self._disentangle(execution, key, record)
        refusal: Permanent | None = None
        if not execution.is_settled(self._store, key, wanted):
            try:
                await self._apply_main(execution, apply, wanted, Priority.URGENT)
            except Permanent as error:
                if error.immutable and apply.orphan_on_immutable:
                    await self._replace(execution, apply, scale, key, wanted)
                    return
                refusal = error
        if scale is not None:
            await self.scale(execution, scale, Priority.URGENT)
        if refusal is not None:
            raise refusal

    async def _apply_main(self, execution: Execution, apply: Apply, wanted: bytes, priority: Priority) -> None:
        answer = await self._writer.send(execution.pool, apply.manifest, names.FIELD_MANAGER, priority, apply.why)
        execution.applied(answer, wanted)

    # -- creation --------------------------------------------------------------------------------------------------

    async def _make(
        self, execution: Execution, apply: Apply, scale: Scale | None, key: ObjectKey, wanted: bytes
    ) -> None:
        if key in execution.memory.applied:
            # Gone, or without its labels. In the latter case planning must see its pod template before we apply.
            live = await self._writer.find(apply.manifest)
            if live is not None:
                log.info("%s lost its labels; restoring them", key, extra=log_fields(execution.pool))
                self._store.upsert(live, pool=execution.pool)
                return
            del execution.memory.applied[key]
        self._need_account(execution, apply.manifest)
        wished = None if scale is None else scale.replicas
        await self._holds.take(execution.pool, apply.manifest, None)
        number = self._replicas_to_create(execution, apply, wished, apply.replicas_before)
        await self._create(execution, apply, key, wanted, number)

    def _need_account(self, execution: Execution, manifest: Manifest) -> None:
        """Without an account of the pool's own no pods: they would run under somebody else's of that name."""
        account = manifest["spec"]["template"]["spec"].get("serviceAccountName")
        for key in execution.memory.refused:
            if key.kind == "ServiceAccount" and key.name == account:
                raise WaitsFor(key)

    async def _create(
        self, execution: Execution, apply: Apply, key: ObjectKey, wanted: bytes, number: int | None
    ) -> None:
        """Make it with the right number from the first moment, and end with `replicas` under the scale manager.

        1 is the API's own default, so the main manager can create with it. Any other number must be in the
        creating request, which therefore is the scale manager's: it applies everything, the main manager then
        applies everything but the number, and the scale manager lets go of all but the number. Should we die in
        between, the next process disentangles the two.
        """
        if number is None or number == 1:
            await self._apply_main(execution, apply, wanted, Priority.URGENT)
        else:
            whole = {**apply.manifest, "spec": {**apply.manifest["spec"], "replicas": number}}
            answer = await self._writer.send(
                execution.pool, whole, names.SCALE_FIELD_MANAGER, Priority.URGENT, apply.why
            )
            execution.memory.begun[key] = Begun(answer["metadata"]["uid"], wanted)
        if number is not None:
            execution.deferred.append((key, partial(self._complete, execution, apply, key, wanted, number)))

    async def _complete(self, execution: Execution, apply: Apply, key: ObjectKey, wanted: bytes, number: int) -> None:
        """The second half of a creation; it completes ownership."""
        if number != 1:
            await self._apply_main(execution, apply, wanted, Priority.NORMAL)
        await self._scale(execution, key, number, "completes its creation", Priority.NORMAL)
        execution.memory.begun.pop(key, None)

    async def _disentangle(self, execution: Execution, key: ObjectKey, record: Record) -> None:
        """End a creation that another process began: nothing but the number stays with the scale manager.

        Before anything is applied: what the pool no longer asks for would stay, being the scale manager's too.
        """

        def fields(live: Manifest) -> list[Manifest] | None:
            return disentangled(live) if live["metadata"]["uid"] == record.uid else None

        live = await self._writer.own(key, fields)
        if live is not None:
            log.info("%s: its creation was cut short; completing it", key, extra=log_fields(execution.pool))
            self._store.upsert(live, notify=False)

    def _replicas_to_create(self, execution: Execution, apply: Apply, wished: int | None, before: int) -> int | None:
        """The number to create a StatefulSet with: never fewer than the pods that wait to be adopted.

        Pods without a controller are what an earlier replacement left behind when the operator died after the
        deletion. A smaller number would kill the topmost of them; if fewer are wanted, the next cycle scales
        down in order. `before` is the number that the one before had.
        """
        expected = max(wished or 0, before)
        waiting = orphaned_replicas(apply.manifest, self._store.pods(execution.pool), expected)
        return wished if waiting == 0 else max(waiting, wished or 0)

    # -- the number ------------------------------------------------------------------------------------------------

    async def scale(self, execution: Execution, scale: Scale, priority: Priority) -> None:
        """Apply the number of replicas to a StatefulSet that exists."""
        await self._scale(execution, scale.key, scale.replicas, scale.why, priority)

    async def _scale(self, execution: Execution, key: ObjectKey, number: int, why: str, priority: Priority) -> None:
        record = self._store.record(execution.pool, key)
        if record is None:
            return
        settled = Scaled(record.uid, number)
        if execution.memory.scaled.get(key) == settled and record.replicas == number:
            return
        self._writer.check()
        answer = await self._kube.apply(
            {
                "apiVersion": key.api_version,
                "kind": key.kind,
                # The uid makes this an update only.
                "metadata": {"namespace": key.namespace, "name": key.name, "uid": record.uid},
                "spec": {"replicas": number},
            },
            manager=names.SCALE_FIELD_MANAGER,
            priority=priority,
        )
        if record.replicas != number:
            log.info(
                "%s scaled from %s to %d replicas: %s",
                key,
                record.replicas,
                number,
                why,
                extra=log_fields(execution.pool),
            )
        self._store.upsert(answer, notify=False)
        execution.memory.scaled[key] = settled

    # -- replacement -----------------------------------------------------------------------------------------------

    async def _replace(
        self, execution: Execution, apply: Apply, scale: Scale | None, key: ObjectKey, wanted: bytes
    ) -> None:
        """Replace the StatefulSet under its pods, which keep running and are adopted by the new one."""
        live = await self._kube.get(key)
        uid, number = live["metadata"]["uid"], live["spec"].get("replicas", 1)
        wished = number if scale is None else scale.replicas
        await self._check_admitted(apply.manifest, wished)
        await self._holds.take(execution.pool, apply.manifest, uid)
        log.info(
            "%s: an immutable field changes; replacing it under its pods (%s)",
            key,
            apply.why,
            extra=log_fields(execution.pool),
        )
        self._writer.check()
        await self._kube.delete(key, uid=uid, propagation="Orphan", priority=Priority.URGENT)
        await self._wait_until_gone(key, uid)
        self._store.remove(execution.pool, key, uid)
        execution.memory.applied.pop(key, None)
        await self._holds.take(execution.pool, apply.manifest, uid)  # those made since
        replicas = self._replicas_to_create(execution, apply, wished, number)
        try:
            await self._create(execution, apply, key, wanted, replicas)
        except (Permanent, Forbidden):
            await self._put_back(execution, live)
            raise

    async def _check_admitted(self, manifest: Manifest, replicas: int) -> None:
        """Raise `Permanent` unless the API server would take this StatefulSet if there were none of its name."""
        whole = {**manifest, "spec": {**manifest["spec"], "replicas": replicas}}
        try:
            await self._kube.create(whole, manager=names.FIELD_MANAGER, priority=Priority.URGENT, dry_run=True)
        except Conflict as error:
            if not error.already_exists:
                raise
        except (Permanent, Forbidden) as error:
            message = (
                f"an immutable field changes, and the StatefulSet that would replace it is refused: {error.message}"
            )
            raise Permanent(message, status=error.status, reason=error.reason) from error

    async def _put_back(self, execution: Execution, before: Manifest) -> None:
        """Make the StatefulSet that was replaced once more, as it was, so that its pods have a controller.

        The scale manager makes it whole; the next cycle completes that like any creation that was cut short.
        """
        meta = before["metadata"]
        kept = {
            field: meta[field]
            for field in ("name", "namespace", "labels", "annotations", "ownerReferences")
            if field in meta
        }
        old = {field: before[field] for field in ("apiVersion", "kind", "spec")} | {"metadata": kept}
        why = "its successor was refused after all"
        try:
            await self._writer.send(execution.pool, old, names.SCALE_FIELD_MANAGER, Priority.URGENT, why)
        except (Permanent, Forbidden) as error:
            log.warning(
                "%s: neither its successor nor itself can be made (%s); its pods go on, and are removed with the pool",
                ObjectKey.of(before),
                error.message,
                extra=log_fields(execution.pool),
            )

    async def _wait_until_gone(self, key: ObjectKey, uid: str) -> None:
        deadline = time.monotonic() + self._gone_timeout
        while time.monotonic() < deadline:
            try:
                live = await self._kube.get(key)
            except NotFound:
                return
            if live["metadata"]["uid"] != uid:
                return
            await asyncio.sleep(_GONE_POLL_SECONDS)
        message = f"{key} is still being deleted after {self._gone_timeout:g} s (is the garbage collector running?)"
        raise Transient(message)


def orphaned_replicas(stateful_set: Manifest, pods: tuple[Manifest, ...], expected: int) -> int:
    """How many replicas a new StatefulSet of this manifest needs to adopt the pods that its predecessor left behind.

    Those are pods without a controller, with its labels and its names, among the `expected` first or in one row with
    them. A pod far above is a stray one: its name does not decide how many GPUs are asked for.
    """
    name, spec = stateful_set["metadata"]["name"], stateful_set["spec"]
    start = (spec.get("ordinals") or {}).get("start", 0)
    places = {
        place - start
        for pod in pods
        if is_left_behind(pod, stateful_set) and (place := ordinal(pod["metadata"]["name"], name)) is not None
    }
    needed = max((place + 1 for place in places if place < expected), default=0)
    row = max(needed, expected)
    while row in places:
        row += 1
        needed = row
    return needed
