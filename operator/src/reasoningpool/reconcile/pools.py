"""All pools' tasks: started when a pool appears, woken by events, ended with it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from reasoningpool.reconcile.pool_task import PoolTask, SharedParts
from reasoningpool.reconcile.shape import shape
from reasoningpool.reconcile.store import PoolName

log = logging.getLogger(__name__)


class Pools:
    """One task per pool. Tasks wait until `start` is called, that is, until the store is whole."""

    def __init__(self, shared: SharedParts) -> None:
        self._shared = shared
        self._tasks: dict[PoolName, tuple[PoolTask, asyncio.Task[None]]] = {}
        self._shapes: dict[PoolName, bytes] = {}
        self._open = asyncio.Event()

    def start(self) -> None:
        """Let the tasks work."""
        self._open.set()

    def __len__(self) -> int:
        return len(self._tasks)

    def names(self) -> Iterator[tuple[PoolName, str]]:
        """Name and uid of each pool that has a task."""
        for name, (task, _) in self._tasks.items():
            yield name, task.uid

    def seen(self, pool: Mapping[str, Any]) -> None:
        """A pool exists, new or changed."""
        meta = pool["metadata"]
        name = PoolName(meta["namespace"], meta["name"])
        current = self._tasks.get(name)
        if current is not None and current[0].uid == meta["uid"]:
            now = shape(pool)
            if self._shapes.get(name) != now:
                self._shapes[name] = now
                current[0].wake(urgent=True)
            else:  # our own status write that comes back, or somebody's edit of the status
                current[0].saw_status(pool)
            return
        if meta.get("deletionTimestamp"):
            return
        self._shapes[name] = shape(pool)
        predecessor = current[1] if current is not None else None
        task = PoolTask(pool, self._shared)
        runner = asyncio.create_task(self._live(task, predecessor), name=f"pool {name.namespace}/{name.name}")
        self._tasks[name] = (task, runner)
        runner.add_done_callback(lambda done: self._ended(name, done))

    def gone(self, name: PoolName, uid: str) -> None:
        """A pool was deleted."""
        current = self._tasks.get(name)
        if current is not None and current[0].uid == uid:
            log.info("the pool is gone", extra={"pool_namespace": name.namespace, "pool": name.name})
            current[1].cancel()

    def wake(self, name: PoolName, *, urgent: bool = False) -> None:
        """Something of this pool changed."""
        current = self._tasks.get(name)
        if current is not None:
            current[0].wake(urgent=urgent)

    def wake_all(self) -> None:
        """Something changed that any pool's plan may depend on."""
        for task, _ in self._tasks.values():
            task.wake(urgent=False)

    async def stop(self) -> None:
        """End all tasks; a request under way is abandoned, the next start sends it again."""
        runners = [runner for _, runner in self._tasks.values()]
        for runner in runners:
            runner.cancel()
        if runners:
            await asyncio.wait(runners, timeout=5)

    async def _live(self, task: PoolTask, predecessor: asyncio.Task[None] | None) -> None:
        if predecessor is not None:  # another pool had this name; its last cycle must not meet our first
            predecessor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([predecessor])
        await self._open.wait()
        await task.run()

    def _ended(self, name: PoolName, runner: asyncio.Task[None]) -> None:
        current = self._tasks.get(name)
        if current is not None and current[1] is runner:
            del self._tasks[name]
            self._shapes.pop(name, None)
        if not runner.cancelled() and (error := runner.exception()) is not None:
            log.error("the task of pool %s/%s ended unexpectedly", *name, exc_info=error)
