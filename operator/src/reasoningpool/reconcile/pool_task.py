"""One pool's task: wake, read, plan, carry out, sleep. Level-triggered; nothing in it knows what woke it."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from reasoningpool.adapters.errors import Forbidden, KubeError, NotFound, NotInstalled, Permanent, Transient
from reasoningpool.adapters.gate import Gate, Priority
from reasoningpool.adapters.kube import Kube
from reasoningpool.api import names
from reasoningpool.objects import Manifest, ObjectKey
from reasoningpool.planning.actions import EventNote, EventType, Plan
from reasoningpool.planning.snapshot import ApplyFailure, Snapshot
from reasoningpool.reconcile.apply.executor import Executor, NotLeading
from reasoningpool.reconcile.events import Events
from reasoningpool.reconcile.memory import PoolMemory, StatusSeen
from reasoningpool.reconcile.observe.readers import Readers
from reasoningpool.reconcile.shape import digest
from reasoningpool.reconcile.sleeper import Sleeper, Timing
from reasoningpool.reconcile.store import PoolName, Store, pack, unpack, version_of

log = logging.getLogger(__name__)

_FRESH_SECONDS: Final = 60.0
_SOONEST_RETRY_SECONDS: Final = 1.0
_CYCLES_AT_ONCE: Final = 32


class Planner(Protocol):
    """`reasoningpool.planning.plan` with its settings bound."""

    def __call__(self, snapshot: Snapshot, *, now: datetime) -> Plan: ...


class FailurePlanner(Protocol):
    """`reasoningpool.planning.plan_failure`: the status that tells of an unexpected exception of ours."""

    def __call__(self, snapshot: Snapshot, error: str, *, now: datetime) -> Plan: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParts:
    """What every pool's task shares."""

    kube: Kube
    store: Store
    executor: Executor
    events: Events
    planner: Planner
    plan_failure: FailurePlanner
    readers: Readers = field(default_factory=Readers)
    may_write: Callable[[], bool] = lambda: True
    timing: Timing = field(default_factory=Timing)
    # Planning takes some ten milliseconds of CPU. One pool at a time, so that a thousand of them leave the event
    # loop free in between (the Lease must be renewed), and pools that changed before pools that only report.
    turn: Gate = field(default_factory=lambda: Gate(1))
    # A cycle holds a plan and a snapshot, some hundred kilobytes; so many pools may be in one at a time.
    cycles: Gate = field(default_factory=lambda: Gate(_CYCLES_AT_ONCE))


class Gone(Exception):  # noqa: N818
    """The pool is deleted, being deleted, or another one bears its name."""


class PoolTask:
    """The life of one pool, by uid. `run` ends when the pool is gone."""

    def __init__(self, pool: Mapping[str, Any], shared: SharedParts) -> None:
        meta = pool["metadata"]
        self.name = name = PoolName(meta["namespace"], meta["name"])
        self.uid: str = meta["uid"]
        self.cycles = 0
        # The first cycle works on what the list or the watch has just brought; all others read.
        self._first: tuple[bytes, float] | None = (pack(pool), time.monotonic())
        self._notes: tuple[EventNote, ...] = ()
        self._logged: frozenset[EventNote] = frozenset()
        # resourceVersion and digest of the status that the watch showed last.
        self._status_seen: tuple[int, bytes] | None = None
        self._writes_status = False
        self._shared = shared
        self._memory = PoolMemory()
        self._sleeper = Sleeper(shared.timing)
        self._log = logging.LoggerAdapter(log, {"pool_namespace": name.namespace, "pool": name.name})

    def wake(self, *, urgent: bool) -> None:
        """Run a cycle soon. `urgent`: the pool itself changed, which also ends a back-off."""
        self._sleeper.wake(urgent=urgent)

    def saw_status(self, pool: Mapping[str, Any]) -> None:
        """The watch shows the pool, which but for its status is as it was; wakes if the status is not our last one."""
        self._status_seen = (version_of(pool), digest(pool.get("status")))
        self._check_status()

    def _check_status(self) -> None:
        ours, seen = self._memory.status, self._status_seen
        if ours is None or seen is None or self._writes_status:
            return
        version, status = seen
        if version > ours.version and status != ours.live:
            self._log.info("the status was changed by someone else")
            self.wake(urgent=False)

    async def run(self) -> None:
        """Cycle until the pool is gone, or this is cancelled."""
        self._log.info("reconciling this pool")
        try:
            await self._cycle_until_gone()
        finally:
            self._shared.events.forget(self.uid)
            self._shared.readers.forget(self.name)

    async def _cycle_until_gone(self) -> None:
        while True:
            changed = self._sleeper.begin_cycle()
            priority = Priority.URGENT if changed or not self.cycles else Priority.NORMAL
            try:
                async with self._shared.cycles.slot(priority):
                    delay = await self._cycle(priority)
                self._sleeper.succeeded()
            except (Gone, NotFound):
                self._log.info("the pool is gone")
                return
            except NotLeading:
                self._log.debug("no longer the leader; nothing is written")
                delay = self._shared.timing.resync
            except KubeError as error:
                delay = self._sleeper.back_off(error.retry_after)
                self._tell(error, delay)
            except Exception as error:  # noqa: BLE001 - a fault in one pool must not end the others
                delay = self._sleeper.back_off(None)
                self._log.exception("reconciling failed unexpectedly; next try in %.0f s", delay)
                await self._tell_status(type(error).__name__)
            await self._sleeper.sleep(delay)

    def _tell(self, error: KubeError, delay: float) -> None:
        if isinstance(error, Forbidden) and error.namespace_terminating:
            self._log.info("its namespace is being deleted; nothing can be created there")
        elif isinstance(error, Forbidden):
            self._log.error("%s; grant it to the operator's service account. Next try in %.0f s", error.message, delay)
        elif isinstance(error, Permanent):
            self._log.error("the API server rejects the operator's request: %s. Next try in %.0f s", error, delay)
        else:
            self._log.warning("%s (HTTP %s); next try in %.1f s", error.message, error.status or "-", delay)

    async def _cycle(self, priority: Priority) -> float:
        """One look at the world and what follows from it; answers the seconds until the next look."""
        self.cycles += 1
        shared, memory = self._shared, self._memory
        pool = await self._read()
        failures, plan = await self._plan(pool, priority)
        shared.readers.want(self.name, plan.wanted)
        report = await shared.executor.carry_out(
            self.name, plan, memory, others_wait=lambda: shared.cycles.is_wanted(Priority.URGENT)
        )
        notes, self._notes = self._notes + tuple(note for note in plan.events if note not in self._notes), ()
        if not report.complete:
            self._notes = notes
            return 0.0
        news = await shared.readers.read(self.name)
        if news or report.failures != failures:
            # Status should tell of what this very cycle found out.
            planned = plan
            _, plan = await self._plan(pool, priority)
            notes += tuple(note for note in plan.events if note not in notes)
            if planned.actions != plan.actions:
                self.wake(urgent=False)
        await self._apply_status(pool, plan.status)
        self._log_notes(notes)
        await self._send_events(pool, notes)
        if report.transient:
            for error in report.transient[1:]:
                self._log.debug("also: %s", error.message)
            first = report.transient[0]
            # A child's 404 (its namespace is going away) is not the pool's.
            raise Transient(first.message, status=404) if isinstance(first, NotFound) else first
        return self._next_look(plan)

    async def _plan(self, pool: Manifest, priority: Priority) -> tuple[tuple[ApplyFailure, ...], Plan]:
        """A plan on what is known when it is this pool's turn, and the refusals it knew of."""
        async with self._shared.turn.slot(priority):
            await asyncio.sleep(0)  # makes the others queue up here rather than plan in the same turn of the loop
            self._sleeper.children_seen()  # what they had to tell until now is in this snapshot
            snapshot = self._snapshot(pool)
            return snapshot.failures, self._shared.planner(snapshot, now=self._shared.kube.now())

    async def _apply_status(self, pool: Manifest, status: Manifest | None) -> None:
        """Apply it, None if it is there already; what the watch shows meanwhile may be this very write."""
        self._writes_status = True
        try:
            if status is not None:
                await self._shared.executor.apply_status(pool, status, self._memory)
            else:
                live = digest(pool.get("status"))
                self._memory.status = StatusSeen(live, live, version_of(pool))
        finally:
            self._writes_status = False
        self._check_status()

    def _log_notes(self, notes: tuple[EventNote, ...]) -> None:
        """What is worth an event is worth a line, once for as long as it holds."""
        for note in notes:
            if note not in self._logged:
                level = logging.INFO if note.type is EventType.NORMAL else logging.WARNING
                self._log.log(level, "%s: %s", note.reason, note.message)
        self._logged = frozenset(notes)

    async def _send_events(self, pool: Manifest, notes: tuple[EventNote, ...]) -> None:
        if self._shared.may_write():
            await self._shared.events.send(pool, notes)

    def _next_look(self, plan: Plan) -> float:
        resync = self._shared.timing.resync * random.uniform(0.8, 1.2)
        retry = self._memory.next_retry()
        return min(
            resync,
            self._shared.readers.due_in(self.name),
            math.inf if plan.requeue_after_seconds is None else plan.requeue_after_seconds,
            math.inf if retry is None else max(_SOONEST_RETRY_SECONDS, retry - time.monotonic()),
        )

    async def _read(self) -> Manifest:
        pool = await self._get()
        meta = pool["metadata"]
        if meta["uid"] != self.uid or meta.get("deletionTimestamp"):
            raise Gone
        if meta["generation"] != self._memory.generation:
            self._memory.generation = meta["generation"]
            self._memory.refused.clear()
        return pool

    async def _get(self) -> Manifest:
        first, self._first = self._first, None
        if first is not None and time.monotonic() - first[1] < _FRESH_SECONDS:
            return unpack(first[0])
        key = ObjectKey(names.API_VERSION, names.KIND, self.name.namespace, self.name.name)
        try:
            return await self._shared.kube.get(key, priority=Priority.URGENT)
        except NotInstalled as error:  # the CRD was removed, and every pool with it
            raise Gone from error

    def _snapshot(self, pool: Manifest) -> Snapshot:
        store = self._shared.store
        return Snapshot(
            pool=pool,
            children=store.children(self.name, self.uid),
            pods=store.pods(self.name),
            failures=self._memory.failures(),
            observations=self._shared.readers.known(self.name),
            availability=store.availability,
        )

    async def _tell_status(self, error: str) -> None:
        """Put an exception of ours into the status, as far as that works."""
        shared = self._shared
        try:
            pool = await self._read()
            snapshot = self._snapshot(pool)
            plan = shared.plan_failure(snapshot, error, now=shared.kube.now())
            await self._apply_status(pool, plan.status)
            await self._send_events(pool, plan.events)
        except (KubeError, Gone, NotLeading) as also:
            self._log.debug("the failure could not be written to the status: %r", also)
        except Exception:  # noqa: BLE001 - this is the last resort already
            self._log.exception("the failure could not be written to the status")
