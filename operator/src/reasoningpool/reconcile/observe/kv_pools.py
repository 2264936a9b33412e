"""Reads engines' KV pools beside the cycles of the pools' tasks: few at a time, patiently, once per engine start."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from reasoningpool.planning.observations import KVPool, KVPoolProblem, KVPoolReport, KVPoolRequest
from reasoningpool.reconcile.store import PoolName

log = logging.getLogger(__name__)

# A thousand pools of two replicas that nobody answers for, two seconds of connecting each, are through in two minutes.
AT_ONCE: Final = 32
FIRST_RETRY_SECONDS: Final = 5.0
MAX_RETRY_SECONDS: Final = 600.0

Fetch = Callable[[str, int], Awaitable[KVPoolReport]]


@dataclass(slots=True)
class _Engine:
    """One start of an engine, and the task that reads it."""

    task: asyncio.Task[None]
    report: KVPoolReport | None = None


class KVPoolReader:
    """Reads beside the cycles: an engine may take seconds to answer. `on_news` is told the pool of each new report."""

    kind: Final = KVPoolRequest

    def __init__(
        self,
        fetch: Fetch,
        on_news: Callable[[PoolName], None],
        *,
        at_once: int = AT_ONCE,
        first_retry: float = FIRST_RETRY_SECONDS,
    ) -> None:
        self._fetch = fetch
        self._on_news = on_news
        self._slots = asyncio.Semaphore(at_once)
        # Engines that did not answer well wait for each other, not others for them.
        self._slots_again = asyncio.Semaphore(max(1, at_once // 4))
        self._first_retry = first_retry
        self._pools: dict[PoolName, dict[str, _Engine]] = {}

    def want(self, pool: PoolName, requests: tuple[KVPoolRequest, ...]) -> None:
        """Begin to read engines that are new, and give up on those that are not asked for any more."""
        wanted = {request.subject: request for request in requests}
        engines = self._pools.pop(pool, {})
        for subject in engines.keys() - wanted.keys():
            engines.pop(subject).task.cancel()
        for subject in wanted.keys() - engines.keys():
            reading = self._read(pool, wanted[subject])
            engines[subject] = _Engine(
                asyncio.create_task(reading, name=f"read KV pool of {pool.namespace}/{pool.name}")
            )
        if engines:
            self._pools[pool] = engines

    async def read(self, _pool: PoolName) -> bool:
        """Nothing within a cycle."""
        return False

    def known(self, pool: PoolName) -> Mapping[str, KVPoolReport]:
        """What the pool's engines have reported, by start of the engine."""
        engines = self._pools.get(pool, {})
        return {subject: engine.report for subject, engine in engines.items() if engine.report is not None}

    def due_in(self, _pool: PoolName) -> float:
        """Nothing within a cycle."""
        return math.inf

    def forget(self, pool: PoolName) -> None:
        """The pool is gone."""
        self.want(pool, ())

    async def stop(self) -> None:
        """End all reading."""
        tasks = [engine.task for engines in self._pools.values() for engine in engines.values()]
        self._pools.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5)

    async def _read(self, pool: PoolName, request: KVPoolRequest) -> None:
        delay, slots = self._first_retry, self._slots
        while True:
            async with slots:
                report = await self._once(request)
            self._take(pool, request.subject, report)
            if isinstance(report, KVPool):
                return
            await asyncio.sleep(delay * random.uniform(0.8, 1.2))
            slots = self._slots_again
            delay = min(delay * 2, MAX_RETRY_SECONDS)

    async def _once(self, request: KVPoolRequest) -> KVPoolReport:
        try:
            return await self._fetch(request.address, request.port)
        except Exception:  # a fault of ours must not end the trying
            log.exception("reading the KV pool at %s failed unexpectedly", request.address)
            return KVPoolProblem.BAD_ANSWER

    def _take(self, pool: PoolName, subject: str, report: KVPoolReport) -> None:
        engine = self._pools.get(pool, {}).get(subject)
        if engine is None or engine.report == report:
            return
        engine.report = report
        log.debug("KV pool of %s: %s", subject, report, extra={"pool_namespace": pool.namespace, "pool": pool.name})
        self._on_news(pool)
