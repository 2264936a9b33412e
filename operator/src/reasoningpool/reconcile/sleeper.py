"""How long a pool's task waits between two cycles, and what ends the wait."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """All waits of a pool's task, in seconds."""

    resync: float = 300.0
    # After a change of the pool: long enough for `kubectl apply` of several objects, too short to be felt.
    settle: float = 0.05
    # Between two cycles that only children called for; a rollout's pods report many times a second.
    gap: float = 1.0
    first_backoff: float = 1.0
    max_backoff: float = 300.0


class Sleeper:
    """The waits of one pool's task. It may be woken at any time, also during a cycle."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._woken = asyncio.Event()
        self._urgent = False
        self._rang = False
        self._failures = 0

    def wake(self, *, urgent: bool) -> None:
        """Let a cycle begin soon. `urgent`: the pool itself changed, which also ends a back-off."""
        self._urgent = self._urgent or urgent
        self._woken.set()

    def begin_cycle(self) -> bool:
        """What has woken the task until now is answered by this cycle; whether any of it was urgent."""
        self._woken.clear()
        urgent, self._urgent = self._urgent, False
        return urgent

    def children_seen(self) -> None:
        """What children had to tell until now is known; only a change of the pool since calls for one more cycle."""
        if not self._urgent:
            self._woken.clear()

    def succeeded(self) -> None:
        """The cycle went through: from here on children may wake, and the next back-off begins anew."""
        self._failures = 0

    def back_off(self, retry_after: float | None) -> float:
        """The cycle failed: seconds until the next try, more each time and `retry_after` at the least."""
        timing = self._timing
        self._failures += 1
        delay = min(timing.max_backoff, timing.first_backoff * 2.0 ** min(self._failures - 1, 20))
        return max(delay * random.uniform(0.8, 1.2), retry_after or 0.0)

    async def sleep(self, delay: float) -> None:
        """Until woken or until `delay` is over, then a moment more, so that changes that come together count once."""
        timing, ended = self._timing, time.monotonic()
        with self._alarm(delay):
            while True:
                await self._woken.wait()
                if self._rang or self._urgent or not self._failures:
                    break
                self._woken.clear()  # backing off: events of children do not shorten it
        if self._urgent:
            await asyncio.sleep(timing.settle)
        elif not self._rang:
            await self._rest(ended + timing.gap - time.monotonic())

    async def _rest(self, seconds: float) -> None:
        """Wait out the gap between cycles, less if the pool itself changes meanwhile."""
        self._woken.clear()
        with self._alarm(max(0.0, seconds)):
            while not (self._rang or self._urgent):
                await self._woken.wait()
                self._woken.clear()

    @contextmanager
    def _alarm(self, delay: float) -> Iterator[None]:
        """Within the block, the clock wakes after `delay`."""
        self._rang = False
        alarm = asyncio.get_running_loop().call_later(delay, self._ring)
        try:
            yield
        finally:
            alarm.cancel()

    def _ring(self) -> None:
        """The resync, the requeue, the end of a back-off or of the gap is due."""
        self._rang = True
        self._woken.set()
