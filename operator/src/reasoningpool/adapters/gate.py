"""How many requests are under way at once, and which of the waiting ones goes next."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import IntEnum


class Priority(IntEnum):
    """Lower goes first.

    With a thousand pools to create, what makes engines start (reads, ServiceAccounts, StatefulSets) passes
    before what only completes a pool, so that the last pool's engines do not wait for the first pool's
    PodDisruptionBudget.
    """

    URGENT = 0
    NORMAL = 1
    BACKGROUND = 2


class Gate:
    """A semaphore whose waiters are served by priority, and within one priority in order of arrival."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrival = itertools.count()

    @asynccontextmanager
    async def slot(self, priority: Priority) -> AsyncIterator[None]:
        """Hold one slot for the time of the block."""
        await self._acquire(priority)
        try:
            yield
        finally:
            self._release()

    def is_wanted(self, priority: Priority) -> bool:
        """Whether somebody waits for a slot with this priority or a higher one."""
        return any(level <= priority and not turn.done() for level, _, turn in self._waiting[:1])

    async def _acquire(self, priority: Priority) -> None:
        if self._free > 0:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (int(priority), next(self._arrival), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()  # the slot was handed over in the moment of cancellation
            raise

    def _release(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class Allowance:
    """So many of something per second for all who ask, at most a second's worth at once."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_second
        self._clock = clock
        self._left = per_second
        self._at = clock()

    def take(self) -> bool:
        """Whether one more is allowed now; if so, it counts."""
        now = self._clock()
        self._left = min(self._rate, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
