"""Admission for the server's event loop: requests wait here until the forecast has room for them.

All methods belong to one event loop; nothing in here blocks.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from math import ceil
from typing import Final

from reasoningpool_runtime.admission.ledger import Share
from reasoningpool_runtime.admission.pace import Pace
from reasoningpool_runtime.admission.policy import ForecastPolicy
from reasoningpool_runtime.admission.queue import Waiting, WaitingQueue
from reasoningpool_runtime.admission.types import (
    AdmissionConfig,
    AdmissionRequest,
    Capacity,
    Outcome,
    Reason,
    Rejected,
    Snapshot,
)

LOOK_SECONDS: Final = 0.1  # between two looks at the forecast while requests wait
_PACE_TOKENS: Final = 16  # of a stream between two measurements of the pace
_LONGEST_RETRY_SECONDS: Final = 60


class Ticket:
    """A request's place in the pool. Every ticket must be finished, once or more often."""

    def __init__(self, controller: AdmissionController, share: Share, waited_seconds: float) -> None:
        self._controller = controller
        self._share = share
        self.waited_seconds = waited_seconds
        self._measured_at = share.admitted_at
        self._unmeasured = 0

    def tokens_generated(self, count: int, output: int = 0) -> None:
        """The engine has delivered so many tokens more of an output."""
        self._controller._grow(self._share, output, count)  # noqa: SLF001 - the two halves of one interface
        self._unmeasured += count
        if self._unmeasured >= _PACE_TOKENS:
            self._measured_at = self._controller._measure(self._share, self._unmeasured, self._measured_at)  # noqa: SLF001
            self._unmeasured = 0

    def output_finished(self, output: int) -> None:
        """One of several outputs has ended, the others go on."""
        self._controller._end_output(self._share, output)  # noqa: SLF001

    def finish(self, outcome: Outcome, output_tokens: int | None = None) -> None:
        """The request has ended and its share is free at once. A second call does nothing.

        `output_tokens`: of all outputs together, by the response's usage; needed where the response was not streamed.
        """
        self._controller._finish(self._share, outcome, output_tokens)  # noqa: SLF001


class AdmissionController:
    """Admits requests to one engine. `clock` tells seconds that never go back, as `time.monotonic`."""

    def __init__(self, capacity: Capacity, config: AdmissionConfig, clock: Callable[[], float]) -> None:
        self._policy = ForecastPolicy(capacity, config)
        self._queue = WaitingQueue(config)
        self._config = config
        self._clock = clock
        self._pace = Pace()
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False
        self._admitted = self._ended = 0
        self._wait_seconds = 0.0
        self._rejected: Counter[Reason] = Counter()
        self._since = clock()

    async def admit(self, request: AdmissionRequest) -> Ticket:
        """Wait until the request may start. Raises `Rejected`; a cancelled caller leaves the queue."""
        now = self._clock()
        if self._draining:
            raise self._rejection(Reason.DRAINING)
        if self._config.enabled and not self._policy.fits_alone(request):
            raise self._rejection(Reason.TOO_LARGE)
        waiting = Waiting(self._policy.share(request), now)
        if not self._queue and self._may_start(waiting.share, now):
            return self._start(waiting, now)
        if reason := self._queue.refusal(request.prompt_tokens):
            raise self._rejection(reason)
        future: asyncio.Future[Ticket] = asyncio.get_running_loop().create_future()
        waiting.handle = future
        self._queue.push(waiting)
        self._schedule()
        try:
            return await future
        except asyncio.CancelledError:
            self._abandon(waiting, future)
            raise

    def configure(self, config: AdmissionConfig) -> None:
        """Use other limits from now on; what runs and waits stays."""
        self._config = config
        self._policy.configure(config)
        self._queue.configure(config)
        self.poll()

    def observe_preemptions(self, count: int) -> None:
        """The engine has preempted so many requests since the last call (`vllm:num_preemptions_total`).

        Once called, the margin follows these instead of what the ledger tells.
        """
        self._policy.observe_preemptions(count)

    def poll(self) -> None:
        """Look at the queue again: admit what fits, reject what has waited too long."""
        now = self._clock()
        for waiting in self._queue.expired(now):
            self._queue.remove(waiting)
            if not waiting.handle.done():
                waiting.handle.set_exception(self._rejection(Reason.WAIT_TIMEOUT))
        while (head := self._queue.head(now)) is not None and self._may_start(head.share, now):
            self._queue.remove(head)
            if not head.handle.done():  # its caller may be cancelled and not have left the queue yet
                head.handle.set_result(self._start(head, now))
        self._schedule()

    async def drain(self, timeout_seconds: float | None = None) -> bool:
        """Reject what is new, let what waits and runs finish; True when idle, False when the time is over first."""
        self._draining = True
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_seconds)
        except TimeoutError:
            return False
        return True

    def resume(self) -> None:
        """Admit requests again after a drain."""
        self._draining = False

    def snapshot(self) -> Snapshot:
        """The state now."""
        now = self._clock()
        self._estimate(now)
        ledger, block = self._policy.ledger, self._policy.capacity.block_tokens
        return Snapshot(
            running=len(ledger),
            waiting=len(self._queue),
            waiting_tokens=self._queue.tokens,
            resident_tokens=ledger.resident_blocks * block,
            committed_tokens=ledger.committed_blocks * block,
            forecast_tokens=round(float(self._policy.peaks().mean()) * block),
            capacity_tokens=self._policy.capacity.tokens,
            margin_deviations=self._policy.margin.deviations,
            tokens_per_second=self._pace.tokens_per_second,
            oldest_wait_seconds=self._queue.oldest_wait_seconds(now),
            admitted_total=self._admitted,
            wait_seconds_total=self._wait_seconds,
            rejected_total=dict(self._rejected),
            overflows_total=self._policy.overflows,
            draining=self._draining,
        )

    def _may_start(self, share: Share, now: float) -> bool:
        if not self._config.enabled:
            return True
        self._estimate(now)
        return self._policy.may_start(share)

    def _start(self, waiting: Waiting, now: float) -> Ticket:
        self._policy.start(waiting.share, now)
        self._idle.clear()
        self._admitted += 1
        self._wait_seconds += now - waiting.since
        return Ticket(self, waiting.share, now - waiting.since)

    def _estimate(self, now: float) -> None:
        """Bring the requests that are not streamed to where the pace says they are."""
        pace = self._pace.tokens_per_second
        if pace is None:
            return
        for share in self._policy.ledger.shares:
            if not share.request.streamed:
                self._policy.grow_to(share, int(pace * (now - share.admitted_at)))

    def _grow(self, share: Share, output: int, tokens: int) -> None:
        self._policy.grow(share, output, tokens)

    def _measure(self, share: Share, tokens: int, since: float) -> float:
        now = self._clock()
        sequences = sum(made is not None for made in share.generated)
        self._pace.observe(tokens, (now - since) * max(1, sequences))
        return now

    def _end_output(self, share: Share, output: int) -> None:
        self._policy.end_output(share, output)
        self.poll()

    def _finish(self, share: Share, outcome: Outcome, output_tokens: int | None) -> None:
        if share not in self._policy.ledger:
            return
        now = self._clock()
        if output_tokens is not None:
            self._policy.correct(share, output_tokens)
            if not share.request.streamed:
                self._pace.observe(output_tokens, (now - share.admitted_at) * share.request.outputs)
        self._policy.end(share, outcome)
        self._ended += 1
        self.poll()
        if not len(self._policy.ledger) and not self._queue:
            self._idle.set()

    def _abandon(self, waiting: Waiting, future: asyncio.Future[Ticket]) -> None:
        """The caller is gone: out of the queue, or out of the pool if it was admitted in the same moment."""
        if not self._queue.remove(waiting) and future.done() and not future.cancelled() and not future.exception():
            future.result().finish(Outcome.CANCELLED)
        self.poll()

    def _rejection(self, reason: Reason) -> Rejected:
        self._rejected[reason] += 1
        return Rejected(reason, None if reason is Reason.TOO_LARGE else self._retry_after())

    def _retry_after(self) -> int:
        """Seconds until what waits now has started, by the rate of finishes so far."""
        elapsed = self._clock() - self._since
        rate = self._ended / elapsed if elapsed > 0 else 0.0
        wait = (len(self._queue) + 1) / rate if rate > 0 else 1.0
        return min(_LONGEST_RETRY_SECONDS, max(1, ceil(wait)))

    def _schedule(self) -> None:
        """Look again soon while somebody waits: forecasts change as outputs grow, and waits come to their end."""
        if self._queue and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        self.poll()
