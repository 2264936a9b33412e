"""Reads engines' KV pools beside the cycles of the pools' tasks: few at a time, patiently, once per engine start."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from reasoningpool.planning.verification.kv_pools import KVPool, Reading, ReadingProblem, ReadingWanted
from reasoningpool.reconcile.store import PoolName

log = logging.getLogger(__name__)

# A thousand pools of two replicas that nobody answers for, two seconds of connecting each, are through in two minutes.
AT_ONCE: Final = 32
FIRST_RETRY_SECONDS: Final = 5.0
MAX_RETRY_SECONDS: Final = 600.0

Fetch = Callable[[str, int], Awaitable[Reading]]


@dataclass(slots=True)
class _Replica:
    task: asyncio.Task[None]
    reading: Reading | None = None


class Readings:
    """What is known of the engines' KV pools. Without `fetch` nothing is ever read.

    `on_news` is told the pool of each reading that differs from the one before. All of it may be lost at any time.
    """

    def __init__(
        self,
        fetch: Fetch | None = None,
        on_news: Callable[[PoolName], None] = lambda _pool: None,
        *,
        at_once: int = AT_ONCE,
        first_retry: float = FIRST_RETRY_SECONDS,
    ) -> None:
        self._fetch = fetch
        self._on_news = on_news
        self._slots = asyncio.Semaphore(at_once)
        self._first_retry = first_retry
        self._pools: dict[PoolName, dict[str, _Replica]] = {}

    def want(self, pool: PoolName, wanted: Iterable[ReadingWanted]) -> None:
        """These engines of the pool are to be read, and no others; returns at once."""
        if self._fetch is None:
            return
        now = {item.key: item for item in wanted}
        replicas = self._pools.pop(pool, {})
        for key in replicas.keys() - now.keys():
            replicas.pop(key).task.cancel()
        for key in now.keys() - replicas.keys():
            task = asyncio.create_task(self._read(pool, now[key]), name=f"read KV pool of {pool.namespace}/{pool.name}")
            replicas[key] = _Replica(task)
        if replicas:
            self._pools[pool] = replicas

    def known(self, pool: PoolName) -> Mapping[str, Reading]:
        """What has been read of the pool's engines, by key."""
        replicas = self._pools.get(pool, {})
        return {key: replica.reading for key, replica in replicas.items() if replica.reading is not None}

    def forget(self, pool: PoolName) -> None:
        """The pool is gone."""
        self.want(pool, ())

    async def stop(self) -> None:
        """End all reading."""
        tasks = [replica.task for replicas in self._pools.values() for replica in replicas.values()]
        self._pools.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5)

    async def _read(self, pool: PoolName, item: ReadingWanted) -> None:
        assert self._fetch is not None  # `want` starts no task without it
        delay = self._first_retry
        while True:
            async with self._slots:
                reading = await self._once(item)
            self._take(pool, item.key, reading)
            if isinstance(reading, KVPool):
                return
            await asyncio.sleep(delay * random.uniform(0.8, 1.2))
            delay = min(delay * 2, MAX_RETRY_SECONDS)

    async def _once(self, item: ReadingWanted) -> Reading:
        assert self._fetch is not None
        try:
            return await self._fetch(item.address, item.port)
        except Exception:  # a fault of ours must not end the trying
            log.exception("reading the KV pool at %s failed unexpectedly", item.address)
            return ReadingProblem.BAD_ANSWER

    def _take(self, pool: PoolName, key: str, reading: Reading) -> None:
        replica = self._pools.get(pool, {}).get(key)
        if replica is None or replica.reading == reading:
            return
        replica.reading = reading
        log.debug("KV pool of %s: %s", key, reading, extra={"pool_namespace": pool.namespace, "pool": pool.name})
        self._on_news(pool)
