"""Admission as an exchange sees it: a request waits here for its ticket.

Until the engine's pool is known, and where it never is, everything passes.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from reasoningpool_runtime import engine
from reasoningpool_runtime.admission import (
    AdmissionConfig,
    AdmissionController,
    AdmissionRequest,
    Capacity,
    Outcome,
    Reason,
    Rejected,
)
from reasoningpool_runtime.errors import RefusalError

if TYPE_CHECKING:
    from reasoningpool_runtime.asgi import Scope
    from reasoningpool_runtime.contract import RuntimeConfig
    from reasoningpool_runtime.metrics import Metrics
    from reasoningpool_runtime.plan import Plan

_MESSAGES = {
    Reason.TOO_LARGE: "The request's outputs together do not fit the server's memory. Ask for fewer choices.",
    Reason.QUEUE_FULL: "The server has too many waiting requests.",
    Reason.QUEUE_TOKENS: "The server has too many waiting prompt tokens.",
    Reason.WAIT_TIMEOUT: "The request has waited too long for room on the server.",
    Reason.DRAINING: "This server is shutting down.",
}


class Ticket(Protocol):
    """A running request's share of the engine."""

    def tokens_generated(self, count: int, output: int = 0) -> None: ...

    def finish(self, outcome: Outcome, output_tokens: int | None = None) -> None: ...


class Gate:
    """The admission controller of one API-server process, with the engine's pool and the tier's settings."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._config: RuntimeConfig | None = None
        self._controller: AdmissionController | None = None
        self._pool_tokens = 0
        self._preemptions = 0.0
        self._watches_outputs = False

    def configure(self, config: RuntimeConfig) -> None:
        """Use other limits from now on."""
        self._config = config
        if self._controller is not None:
            self._controller.configure(_settings(config))

    def find_pool(self, scope: Scope) -> None:
        """Learn the engine's pool, once it tells."""
        if self._controller is not None or self._config is None or (pool := engine.pool_of(scope)) is None:
            return
        # Each process admits for itself, to its part of the pool.
        processes = engine.processes_of(scope)
        capacity = Capacity(
            blocks=max(1, pool.blocks // processes),
            block_tokens=pool.block_tokens,
            max_sequences=max(1, pool.max_sequences // processes) if pool.max_sequences else None,
        )
        self._pool_tokens = capacity.tokens
        self._watches_outputs = engine.tells_outputs(scope)
        self._controller = AdmissionController(capacity, _settings(self._config), time.monotonic)

    async def admit(self, plan: Plan, prompt_tokens: int) -> Ticket | None:
        """Wait until the request may run. None: nothing limits it.

        Raises:
            RefusalError: it may not run, now or ever (503, 400).
        """
        if self._controller is None:
            return None
        try:
            return await self._controller.admit(self._request(plan, prompt_tokens))
        except Rejected as rejected:
            status = 400 if rejected.reason is Reason.TOO_LARGE else 503
            raise RefusalError(
                status,
                rejected.reason.value,
                _MESSAGES[rejected.reason],
                retry_after_seconds=rejected.retry_after_seconds,
            ) from None

    def observe_preemptions(self) -> None:
        """Tell admission how many requests the engine has preempted since the last call."""
        if self._controller is None:
            return
        total = engine.preemptions()
        if total is not None:
            self._controller.observe_preemptions(max(0, round(total - self._preemptions)))
            self._preemptions = total

    def publish(self) -> None:
        """Bring the gauges up to date."""
        if self._controller is None:
            return
        state = self._controller.snapshot()
        self._metrics.queue.set(state.waiting)
        self._metrics.queue_tokens.set(state.waiting_tokens)
        self._metrics.resident.set(state.resident_tokens)
        self._metrics.committed.set(state.committed_tokens)
        self._metrics.forecast.set(state.forecast_tokens)
        self._metrics.capacity.set(state.capacity_tokens)

    def _request(self, plan: Plan, prompt_tokens: int) -> AdmissionRequest:
        # An estimate may exceed what the engine takes at all; vLLM says so better than admission would.
        prompt_tokens = max(0, min(prompt_tokens, self._pool_tokens // 2, self._pool_tokens - plan.budget.max_tokens))
        name, prefix_tokens = plan.prefix
        return AdmissionRequest(
            effort=plan.budget.effort.name,
            prompt_tokens=prompt_tokens,
            max_output_tokens=max(1, plan.budget.max_tokens),  # 0: a completion that only echoes
            outputs=plan.outputs,
            priority=plan.priority,
            streamed=self._watches_outputs,
            prefix=name,
            prefix_tokens=min(prefix_tokens, prompt_tokens),
        )


def _settings(config: RuntimeConfig) -> AdmissionConfig:
    admission = config.admission
    return AdmissionConfig(
        expected_output_tokens={one.name: one.expected_output_tokens for one in config.efforts},
        preempted_share=admission.preempted_share,
        enabled=admission.enabled,
        max_running=admission.max_running,
        max_queued_requests=admission.max_queued_requests,
        max_queued_tokens=admission.max_queued_tokens,
        max_wait_seconds=admission.max_wait_seconds,
    )
