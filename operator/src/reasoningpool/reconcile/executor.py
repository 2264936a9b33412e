"""Carries out a plan and decides nothing: applies, prunes, pod deletions, status.

What it does add is how: which manager applies what, how a StatefulSet comes into being with the right number of
replicas, and how one whose immutable fields changed is replaced under its running pods.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from reasoningpool.adapters.errors import (
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
    NotInstalled,
    Permanent,
    Transient,
    Unreachable,
)
from reasoningpool.adapters.gate import Priority
from reasoningpool.adapters.kube import Kube
from reasoningpool.api import names
from reasoningpool.planning.types import Apply, ApplyFailure, Manifest, ObjectKey, Plan, Prune
from reasoningpool.reconcile.memory import Applied, PoolMemory, Refused, StatusSeen
from reasoningpool.reconcile.shape import digest, shape
from reasoningpool.reconcile.store import PoolName, Store, is_watched

log = logging.getLogger(__name__)

# A refusal is looked at again even if nothing seems to have changed: quotas and policies change unseen.
RETRY_REFUSED_SECONDS: Final = 300.0
# Permissions are granted by a person who is watching.
RETRY_FORBIDDEN_SECONDS: Final = 60.0
# Kinds that nobody watches are applied again at about every resync.
TRUST_UNWATCHED_SECONDS: Final = 270.0
_GONE_TIMEOUT_SECONDS: Final = 30.0
_GONE_POLL_SECONDS: Final = 0.2

# Engines first, everywhere (see Priority); a ServiceAccount must be there before the first pod.
_RANK: Final = {"ServiceAccount": 0, "StatefulSet": 1}
_LAST_RANK: Final = 2
# Kinds with so little in them that an apply to somebody else's object may meet no conflict.
_SAY_LITTLE: Final = frozenset({"ServiceAccount", "PodDisruptionBudget"})


class NotLeading(Exception):  # noqa: N818
    """Leadership ended; nothing may be written any more."""


@dataclass(slots=True)
class Report:
    """What came of a plan. `failures` are refusals that stand, `transient` what another cycle may mend."""

    failures: tuple[ApplyFailure, ...] = ()
    transient: list[KubeError] = field(default_factory=list)
    # False: only the engines were seen to; the rest of the plan is still to be carried out.
    complete: bool = True


@dataclass(slots=True)
class _Run:
    pool: PoolName
    memory: PoolMemory
    transient: list[KubeError] = field(default_factory=list)
    # The second half of creating StatefulSets; it completes ownership and can wait for other pools' engines.
    late: list[tuple[ObjectKey, Callable[[], Awaitable[None]]]] = field(default_factory=list)


class Executor:
    """Sends what a plan says. `may_write` is asked before every single write."""

    def __init__(
        self,
        kube: Kube,
        store: Store,
        *,
        may_write: Callable[[], bool] = lambda: True,
        gone_timeout: float = _GONE_TIMEOUT_SECONDS,
    ) -> None:
        self._kube = kube
        self._store = store
        self._may_write = may_write
        self._gone_timeout = gone_timeout

    async def carry_out(
        self, pool: PoolName, plan: Plan, memory: PoolMemory, *, hurry: Callable[[], bool] = lambda: False
    ) -> Report:
        """Everything but the status. One child's failure stops no other; an unreachable API server stops all.

        When the engines are seen to and `hurry` says that other pools wait for theirs, the rest is left for later.
        """
        run = _Run(pool, memory)
        memory.keep_only({ObjectKey.of(apply.manifest) for apply in plan.applies})
        engines_done = False
        for apply in sorted(plan.applies, key=lambda apply: _RANK.get(apply.manifest["kind"], _LAST_RANK)):
            if not engines_done and _RANK.get(apply.manifest["kind"], _LAST_RANK) == _LAST_RANK:
                engines_done = True
                if hurry():
                    return Report(memory.failures(), run.transient, complete=False)
            key = ObjectKey.of(apply.manifest)
            await self._guarded(run, key, digest(apply.manifest), partial(self._apply, run, apply))
        for key, step in run.late:
            await self._guarded(run, key, b"", step)
        for prune in (*plan.prunes, *plan.pod_deletions):
            await self._guarded(run, prune.key, b"", partial(self._delete, run, prune))
        return Report(memory.failures(), run.transient)

    async def apply_status(self, pool: Manifest, status: Manifest, memory: PoolMemory) -> bool:
        """Apply the status unless it is there already; True when a request was sent."""
        live = pool.get("status")
        if live == status:
            return False
        seen = StatusSeen(digest(status), digest(live))
        if memory.status == seen:
            return False
        self._check()
        meta = pool["metadata"]
        answer = await self._kube.apply_status(
            {
                "apiVersion": pool["apiVersion"],
                "kind": pool["kind"],
                "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
                "status": status,
            },
            manager=names.FIELD_MANAGER,
        )
        memory.status = StatusSeen(seen.wanted, digest(answer.get("status")))
        return True

    # -- one child -------------------------------------------------------------------------------------------------

    async def _guarded(self, run: _Run, key: ObjectKey, wanted: bytes, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except Unreachable:
            raise
        except Forbidden as error:
            if error.namespace_terminating:
                run.transient.append(error)
            else:
                # RBAC says "cannot"; quotas and policies are forbidding too, and nothing can be granted there.
                hint = "; grant it to the operator's service account (operator/deploy/rbac.yaml lists what it needs)"
                said = error.message + (hint if " cannot " in error.message else "")
                self._refuse(run, key, wanted, said, RETRY_FORBIDDEN_SECONDS)
        except NotInstalled:
            message = f"the cluster does not serve {key.kind} ({key.api_version})"
            self._refuse(run, key, wanted, message, RETRY_REFUSED_SECONDS)
        except Permanent as error:
            self._refuse(run, key, wanted, error.message, RETRY_REFUSED_SECONDS)
        except KubeError as error:
            run.transient.append(error)

    def _refuse(self, run: _Run, key: ObjectKey, wanted: bytes, message: str, retry_after: float) -> None:
        record = self._store.record(run.pool, key)
        known = run.memory.refused.get(key)
        if known is None or known.failure.message != message:
            log.warning("%s was refused: %s", key, message, extra=_extra(run.pool))
        run.memory.refused[key] = Refused(
            wanted=wanted,
            shape=record.shape if record is not None else None,
            failure=ApplyFailure(key=key, message=message),
            retry_at=time.monotonic() + retry_after,
        )

    async def _apply(self, run: _Run, apply: Apply) -> None:
        key, wanted = ObjectKey.of(apply.manifest), digest(apply.manifest)
        if self._stands_refused(run, key, wanted):
            return
        record = self._store.record(run.pool, key)
        if record is not None and record.deleting:
            return  # when it is gone, that is an event, and the next cycle makes it anew
        if key.kind == "StatefulSet":
            await self._apply_stateful_set(run, apply, key, wanted)
        elif not self._settled(run, key, wanted):
            await self._apply_main(run, apply, key, wanted)
        run.memory.refused.pop(key, None)

    def _stands_refused(self, run: _Run, key: ObjectKey, wanted: bytes) -> bool:
        refused = run.memory.refused.get(key)
        if refused is None or refused.wanted != wanted or time.monotonic() >= refused.retry_at:
            return False
        record = self._store.record(run.pool, key)
        return refused.shape == (record.shape if record is not None else None)

    def _settled(self, run: _Run, key: ObjectKey, wanted: bytes) -> bool:
        done = run.memory.applied.get(key)
        if done is None or done.wanted != wanted:
            return False
        if not is_watched(key):
            return time.monotonic() - done.at < TRUST_UNWATCHED_SECONDS
        record = self._store.record(run.pool, key)
        return record is not None and record.uid == done.uid and record.shape == done.shape

    async def _apply_main(
        self, run: _Run, apply: Apply, key: ObjectKey, wanted: bytes, *, priority: Priority | None = None
    ) -> Manifest:
        """Apply the whole manifest with the main manager and remember what came of it."""
        default = Priority.URGENT if key.kind in _RANK else Priority.NORMAL
        answer = await self._send(
            run, apply.manifest, key, names.FIELD_MANAGER, default if priority is None else priority
        )
        done = run.memory.applied.get(key)
        uid = answer["metadata"]["uid"]
        replicas = done.replicas if done is not None and done.uid == uid else None
        run.memory.applied[key] = Applied(wanted, uid, shape(answer), time.monotonic(), replicas)
        return answer

    async def _send(self, run: _Run, manifest: Manifest, key: ObjectKey, manager: str, priority: Priority) -> Manifest:
        self._check()
        # Of an object that we have not seen, we do not take fields by force: it may be somebody else's.
        force = self._store.record(run.pool, key) is not None
        if not force and key.kind in _SAY_LITTLE:
            await self._refuse_foreign(manifest, key)
        try:
            answer = await self._kube.apply(manifest, manager=manager, force=force, priority=priority)
        except Conflict as conflict:
            if force or not conflict.field_managers:
                raise
            await self._claim(manifest, key, conflict)
            answer = await self._kube.apply(manifest, manager=manager, priority=priority)
        self._store.upsert(answer, notify=False)
        return answer

    async def _claim(self, manifest: Manifest, key: ObjectKey, conflict: Conflict) -> None:
        """Whether an object that lost our labels is ours nevertheless: it has the same controller."""
        if not _is_of_pool(await self._kube.get(key), manifest):
            raise _foreign(key, conflict.message)

    async def _refuse_foreign(self, manifest: Manifest, key: ObjectKey) -> None:
        """Look before applying where an apply would conflict with nothing and silently take the object over."""
        try:
            live = await self._kube.get(key)
        except NotFound:
            return
        if not _is_of_pool(live, manifest):
            raise _foreign(key, "it has another owner or none")

    # -- StatefulSets ----------------------------------------------------------------------------------------------

    async def _apply_stateful_set(self, run: _Run, apply: Apply, key: ObjectKey, wanted: bytes) -> None:
        record = self._store.record(run.pool, key)
        if record is None:
            self._need_account(run, apply.manifest)
            number = self._replicas_to_create(run, apply, apply.replicas)
            await self._create_stateful_set(run, apply, key, wanted, number)
            return
        refusal: Permanent | None = None
        if not self._settled(run, key, wanted):
            try:
                await self._apply_main(run, apply, key, wanted)
            except Permanent as error:
                if error.immutable and apply.orphan_on_immutable:
                    await self._recreate(run, apply, key, wanted)
                    return
                refusal = error
        if apply.replicas is not None:
            await self._scale(run, key, apply.replicas, Priority.URGENT)
        if refusal is not None:
            raise refusal

    def _need_account(self, run: _Run, manifest: Manifest) -> None:
        """Without an account of the pool's own no pods: they would run under somebody else's of that name."""
        account = manifest["spec"]["template"]["spec"].get("serviceAccountName")
        for key, refused in run.memory.refused.items():
            if key.kind == "ServiceAccount" and key.name == account:
                raise Permanent(refused.failure.message, status=409, reason="AlreadyExists")

    async def _create_stateful_set(
        self, run: _Run, apply: Apply, key: ObjectKey, wanted: bytes, number: int | None
    ) -> None:
        """Make it with the right number from the first moment, and end with `replicas` under the scale manager.

        1 is the API's own default, so the main manager can create with it. Any other number must be in the
        creating request, which therefore is the scale manager's: it applies everything, the main manager then
        applies everything but the number, and the scale manager lets go of all but the number. Should we die in
        between, the next cycle's ordinary applies lead to the same end.
        """
        if number is None or number == 1:
            await self._apply_main(run, apply, key, wanted)
        else:
            whole = {**apply.manifest, "spec": {**apply.manifest["spec"], "replicas": number}}
            await self._send(run, whole, key, names.SCALE_FIELD_MANAGER, Priority.URGENT)
        if number is None:
            return

        async def complete() -> None:
            if number != 1:
                await self._apply_main(run, apply, key, wanted, priority=Priority.NORMAL)
            await self._scale(run, key, number, Priority.NORMAL)

        run.late.append((key, complete))

    async def _scale(self, run: _Run, key: ObjectKey, number: int, priority: Priority) -> None:
        record, done = self._store.record(run.pool, key), run.memory.applied.get(key)
        if record is None:
            return
        if done is not None and done.uid == record.uid and done.replicas == number == record.replicas:
            return
        self._check()
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
        self._store.upsert(answer, notify=False)
        if done is not None:
            done.replicas = number

    async def _recreate(self, run: _Run, apply: Apply, key: ObjectKey, wanted: bytes) -> None:
        """Replace the StatefulSet under its pods, which keep running and are adopted by the new one."""
        live = await self._kube.get(key)
        uid, number = live["metadata"]["uid"], live["spec"].get("replicas", 1)
        log.info("%s: an immutable field changes; replacing it under its pods", key, extra=_extra(run.pool))
        self._check()
        await self._kube.delete(key, uid=uid, propagation="Orphan", priority=Priority.URGENT)
        await self._wait_until_gone(key, uid)
        self._store.remove(run.pool, key, uid)
        run.memory.applied.pop(key, None)
        wished = number if apply.replicas is None else apply.replicas
        await self._create_stateful_set(run, apply, key, wanted, self._replicas_to_create(run, apply, wished))

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

    def _replicas_to_create(self, run: _Run, apply: Apply, wished: int | None) -> int | None:
        """The number to create a StatefulSet with: never fewer than the pods that wait to be adopted.

        Pods without a controller are what an earlier replacement left behind when the operator died after the
        deletion. A smaller number would kill the topmost of them; if fewer are wanted, the next cycle scales
        down in order.
        """
        waiting = orphaned_replicas(apply.manifest, self._store.pods(run.pool))
        return wished if waiting == 0 else max(waiting, wished or 0)

    # -- deletions -------------------------------------------------------------------------------------------------

    async def _delete(self, run: _Run, prune: Prune) -> None:
        record = self._store.record(run.pool, prune.key)
        if record is not None and record.uid == prune.uid and record.deleting:
            return
        self._check()
        try:
            await self._kube.delete(prune.key, uid=prune.uid)
        except NotFound:
            self._store.remove(run.pool, prune.key, prune.uid)
        except Conflict:
            log.debug("%s is another object by now; not deleted", prune.key, extra=_extra(run.pool))

    def _check(self) -> None:
        if not self._may_write():
            raise NotLeading


def orphaned_replicas(stateful_set: Manifest, pods: tuple[Manifest, ...]) -> int:
    """How many replicas a new StatefulSet of this manifest needs to adopt every pod that has no controller."""
    name, spec = stateful_set["metadata"]["name"], stateful_set["spec"]
    selector = spec["selector"]["matchLabels"].items()
    start = (spec.get("ordinals") or {}).get("start", 0)
    ordinals = [
        int(ordinal)
        for pod in pods
        if selector <= (pod["metadata"].get("labels") or {}).items()
        and _controller_uid(pod) is None
        and not pod["metadata"].get("deletionTimestamp")
        and (ordinal := pod["metadata"]["name"].removeprefix(f"{name}-")).isdecimal()
    ]
    return max((ordinal - start + 1 for ordinal in ordinals), default=0)


def _is_of_pool(live: Manifest, manifest: Manifest) -> bool:
    owner = _controller_uid(manifest)
    return owner is not None and _controller_uid(live) == owner


def _foreign(key: ObjectKey, why: str) -> Permanent:
    message = (
        f"{key} exists already and does not belong to this pool ({why}); "
        "delete it, or give the pool or tier another name"
    )
    return Permanent(message, status=409, reason="AlreadyExists")


def _controller_uid(manifest: Manifest) -> str | None:
    references: list[dict[str, Any]] = manifest["metadata"].get("ownerReferences") or []
    return next((str(owner["uid"]) for owner in references if owner.get("controller")), None)


def _extra(pool: PoolName) -> dict[str, str]:
    return {"pool_namespace": pool.namespace, "pool": pool.name}
