"""Admission as the exchange sees it: a request waits here for its ticket."""

from __future__ import annotations

from typing import Protocol

from reasoningpool_runtime.asgi import Scope
from reasoningpool_runtime.contract import RuntimeConfig
from reasoningpool_runtime.metrics import Metrics


class Ticket(Protocol):
    """A running request's share of the engine."""

    def tokens_generated(self, count: int, output: int = 0) -> None: ...

    def finish(self, outcome: str, output_tokens: int | None = None) -> None: ...


class FreeTicket:
    """The share of a request that nobody limits."""

    def tokens_generated(self, count: int, output: int = 0) -> None:
        """Nothing to keep."""

    def finish(self, outcome: str, output_tokens: int | None = None) -> None:
        """Nothing to free."""


class Gate:
    """Lets everything through."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def configure(self, config: RuntimeConfig) -> None:
        """Use other limits from now on."""

    def find_pool(self, scope: Scope) -> None:
        """Learn the engine's pool once it tells."""

    def publish(self) -> None:
        """Bring the gauges up to date."""

    async def admit(
        self, *, effort: str, prompt_tokens: int, max_tokens: int, outputs: int, streamed: bool, priority: int
    ) -> Ticket:
        """Wait until the request may run."""
        return FreeTicket()
