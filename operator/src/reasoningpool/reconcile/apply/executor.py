"""Carries out a plan and decides nothing: applies, scales, labels, deletes, status.

What it does add is how: in which order, what is not worth a request, and what comes of a refusal.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from reasoningpool.adapters.errors import (
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
    NotInstalled,
    NotLeading,
    Permanent,
    Transient,
    Unreachable,
)
from reasoningpool.adapters.gate import Allowance, Priority
from reasoningpool.adapters.kube import Kube
from reasoningpool.api import names
from reasoningpool.objects import Manifest, ObjectKey
from reasoningpool.planning.actions import Apply, Delete, Plan, Scale, SetLabel
from reasoningpool.planning.snapshot import ApplyFailure
from reasoningpool.reconcile.apply.execution import Execution
from reasoningpool.reconcile.apply.stateful_sets import GONE_TIMEOUT_SECONDS, StatefulSets, WaitsFor
from reasoningpool.reconcile.apply.writer import Rediscovered, Writer
from reasoningpool.reconcile.memory import PoolMemory, Refused, StatusSeen
from reasoningpool.reconcile.shape import digest
from reasoningpool.reconcile.store import PoolName, Store, log_fields, version_of

__all__ = ["Executor", "NotLeading", "Report"]

log = logging.getLogger(__name__)

# A refusal is looked at again even if nothing seems to have changed: quotas, policies, permissions and objects of
# other people change unseen. Whoever removes the cause is watching, so soon; but one cause may hold up all pools,
# so that together they try only so often.
_FIRST_RETRY_SECONDS: Final = 2.0
_MAX_RETRY_SECONDS: Final = 30.0
_RETRIES_PER_SECOND: Final = 10.0
# What was refused in one cycle is due in one cycle.
_RETRY_SLACK_SECONDS: Final = 1.0


@dataclass(slots=True)
class Report:
    """What came of a plan. `failures` are refusals that stand, `transient` what another cycle may mend."""

    failures: tuple[ApplyFailure, ...] = ()
    transient: list[KubeError] = field(default_factory=list)
    # False: only the engines were seen to; the rest of the plan is still to be carried out.
    complete: bool = True


class Executor:
    """Sends what a plan says. `may_write` is asked before every single write."""

    def __init__(
        self,
        kube: Kube,
        store: Store,
        *,
        may_write: Callable[[], bool] = lambda: True,
        gone_timeout: float = GONE_TIMEOUT_SECONDS,
    ) -> None:
        self._kube = kube
        self._store = store
        self._writer = Writer(kube, store, may_write)
        self._sets = StatefulSets(kube, store, self._writer, gone_timeout=gone_timeout)
        self._retries = Allowance(_RETRIES_PER_SECOND)

    async def carry_out(
        self,
        pool: PoolName,
        plan: Plan,
        memory: PoolMemory,
        *,
        others_wait: Callable[[], bool] = lambda: False,
    ) -> Report:
        """Everything but the status. One child's failure stops no other; an unreachable API server stops all.

        When the engines are seen to and `others_wait` says that other pools wait for theirs, the rest is left for
        later.
        """
        execution, kinds = Execution(pool, memory), self._store.kinds
        scales = {scale.key: scale for scale in plan.scales}
        memory.keep_only({ObjectKey.of(apply.manifest) for apply in plan.applies} | scales.keys(), _touched(plan))
        engines_done = False
        for apply in plan.applies:  # engines first, everywhere (see Priority)
            key = ObjectKey.of(apply.manifest)
            if not engines_done and not kinds.of(key).urgent:
                engines_done = True
                if others_wait():
                    return Report(memory.failures(), execution.transient, complete=False)
            step = partial(self._apply, execution, apply, scales.pop(key, None))
            await self._guarded(execution, key, digest(apply.manifest), step)
        for scale in scales.values():  # of StatefulSets that the plan leaves alone otherwise
            await self._guarded(execution, scale.key, b"", partial(self._sets.scale, execution, scale, Priority.URGENT))
        for key, deferred in execution.deferred:
            await self._guarded(execution, key, b"", deferred)
        for label in plan.labels:
            await self._guarded(execution, label.key, b"", partial(self._label, execution, label))
        for delete in plan.deletes:
            await self._guarded(execution, delete.key, b"", partial(self._delete, execution, delete))
        return Report(memory.failures(), execution.transient)

    async def apply_status(self, pool: Manifest, status: Manifest, memory: PoolMemory) -> bool:
        """Apply the status unless it is there already; True when a request was sent."""
        live, wanted, found = pool.get("status"), digest(status), digest(pool.get("status"))
        seen = memory.status
        if live == status or (seen is not None and (seen.wanted, seen.live) == (wanted, found)):
            memory.status = StatusSeen(wanted, found, version_of(pool))
            return False
        self._writer.check()
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
        memory.status = StatusSeen(wanted, digest(answer.get("status")), version_of(answer))
        return True

    # -- one child -------------------------------------------------------------------------------------------------

    async def _guarded(
        self, execution: Execution, key: ObjectKey, wanted: bytes, step: Callable[[], Awaitable[None]]
    ) -> None:
        try:
            await step()
            execution.memory.went_through(key, is_apply=bool(wanted))
        except Unreachable:
            raise
        except Rediscovered:
            log.debug("%s is reconciled again", key, extra=log_fields(execution.pool))
        except Forbidden as error:
            self._forbid(execution, key, wanted, error)
        except NotInstalled:
            self._refuse(execution, key, wanted, f"the cluster does not serve {key.kind} ({key.api_version})")
        except WaitsFor as error:
            self._refuse(execution, key, wanted, error.message, error.cause)
        except Permanent as error:
            self._refuse(execution, key, wanted, error.message)
        except Transient as error:
            self._stumble(execution, key, wanted, error)
        except KubeError as error:
            execution.transient.append(error)

    def _forbid(self, execution: Execution, key: ObjectKey, wanted: bytes, error: Forbidden) -> None:
        if error.namespace_terminating:
            execution.transient.append(error)
            return
        # RBAC says "cannot"; quotas and policies are forbidding too, and nothing can be granted there.
        hint = "; grant it to the operator's service account (operator/deploy/rbac.yaml lists what it needs)"
        self._refuse(execution, key, wanted, error.message + (hint if " cannot " in error.message else ""))

    def _stumble(self, execution: Execution, key: ObjectKey, wanted: bytes, error: Transient) -> None:
        """Once is a moment's trouble; what comes again may last (an admission webhook that is down).

        It is told like a refusal then, and the pool goes on with everything else.
        """
        memory = execution.memory
        if key in memory.stumbled or key in memory.refused:
            self._refuse(execution, key, wanted, error.message, retry_after=error.retry_after)
        else:
            memory.stumbled.add(key)
            execution.transient.append(error)

    def _refuse(
        self,
        execution: Execution,
        key: ObjectKey,
        wanted: bytes,
        message: str,
        cause: ObjectKey | None = None,
        *,
        retry_after: float | None = None,
    ) -> None:
        record = self._store.record(execution.pool, key)
        known = execution.memory.refused.get(key)
        again = known is not None and known.failure.message == message
        if not again:
            log.warning("%s was rejected: %s", key, message, extra=log_fields(execution.pool))
        tries = known.tries + 1 if known is not None and again else 1
        delay = min(_MAX_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2.0 ** min(tries - 1, 10))
        execution.memory.refused[key] = Refused(
            wanted=wanted,
            shape=record.shape if record is not None else None,
            failure=ApplyFailure(key=key, message=message),
            retry_at=time.monotonic() + max(delay * execution.memory.jitter, retry_after or 0.0),
            tries=tries,
            cause=cause,
        )

    async def _apply(self, execution: Execution, apply: Apply, scale: Scale | None) -> None:
        key, wanted = ObjectKey.of(apply.manifest), digest(apply.manifest)
        if self._stands_refused(execution, key, wanted):
            return
        record = self._store.record(execution.pool, key)
        if record is not None and record.deleting:
            return  # when it is gone, that is an event, and the next cycle makes it anew
        if key.kind == "StatefulSet":
            await self._sets.apply(execution, apply, scale, wanted)
        elif not execution.is_settled(self._store, key, wanted):
            priority = Priority.URGENT if self._store.kinds.of(key).urgent else Priority.NORMAL
            answer = await self._writer.send(execution.pool, apply.manifest, names.FIELD_MANAGER, priority, apply.why)
            execution.applied(answer, wanted)
        if execution.memory.refused.pop(key, None) is not None:
            log.info("%s is no longer rejected", key, extra=log_fields(execution.pool))

    def _stands_refused(self, execution: Execution, key: ObjectKey, wanted: bytes) -> bool:
        refused = execution.memory.refused.get(key)
        if refused is None or refused.wanted != wanted:
            return False
        record = self._store.record(execution.pool, key)
        if refused.shape != (record.shape if record is not None else None):
            return False
        if refused.cause is not None:
            return refused.cause in execution.memory.refused
        if time.monotonic() + _RETRY_SLACK_SECONDS < refused.retry_at:
            return True
        if self._retries.take():
            return False
        refused.retry_at = time.monotonic() + _MAX_RETRY_SECONDS * execution.memory.jitter
        return True

    # -- labels and deletions --------------------------------------------------------------------------------------

    async def _label(self, execution: Execution, label: SetLabel) -> None:
        """By merge patch: other labels, whoever set them, are neither sent nor owned."""
        record = self._store.record(execution.pool, label.key)
        if record is not None and record.uid == label.uid:
            labels = record.manifest()["metadata"].get("labels") or {}
            if record.deleting or labels.get(label.label) == label.value:
                return
        self._writer.check()
        try:
            answer = await self._kube.label(
                label.key, uid=label.uid, labels={label.label: label.value}, manager=names.LABEL_FIELD_MANAGER
            )
        except NotFound:
            self._store.remove(execution.pool, label.key, label.uid)
        except Conflict:
            log.debug("%s was replaced by another object; not labelled", label.key, extra=log_fields(execution.pool))
        else:
            self._store.upsert(answer, notify=False)
            change = f"{label.label} removed" if label.value is None else f"{label.label}={label.value}"
            log.info("%s: label %s: %s", label.key, change, label.why, extra=log_fields(execution.pool))

    async def _delete(self, execution: Execution, delete: Delete) -> None:
        record = self._store.record(execution.pool, delete.key)
        if record is not None and record.uid == delete.uid and record.deleting:
            return
        self._writer.check()
        try:
            await self._kube.delete(delete.key, uid=delete.uid)
        except NotFound:
            self._store.remove(execution.pool, delete.key, delete.uid)
        except Conflict:
            log.debug("%s was replaced by another object; not deleted", delete.key, extra=log_fields(execution.pool))
        else:
            log.info("%s deleted: %s", delete.key, delete.why, extra=log_fields(execution.pool))


def _touched(plan: Plan) -> set[ObjectKey]:
    """The objects that a plan does something about."""
    others: tuple[Scale | SetLabel | Delete, ...] = (*plan.scales, *plan.labels, *plan.deletes)
    return {ObjectKey.of(apply.manifest) for apply in plan.applies} | {action.key for action in others}
