"""What all requests of one process share, and the task that keeps it up to date."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from reasoningpool_runtime import contract, engine
from reasoningpool_runtime.config_file import ConfigFile
from reasoningpool_runtime.contract import Closure, RuntimeConfig
from reasoningpool_runtime.gate import Gate
from reasoningpool_runtime.lifecycle import Lifecycle, state_dir
from reasoningpool_runtime.metrics import Metrics, metrics
from reasoningpool_runtime.probe import Probe
from reasoningpool_runtime.trace_log import TraceLog

if TYPE_CHECKING:
    from reasoningpool_runtime.asgi import App, Scope
    from reasoningpool_runtime.exchange import Exchange

logger = logging.getLogger("reasoningpool.runtime")

PROGRESS_SECONDS = 0.1  # between two looks at how far the engine is with each request
_LOG_EVERY_SECONDS = 10.0  # of failures in one place
_FILES_EVERY = 5  # so many of these between two looks at the files


class Runtime:
    """The state of one API-server process. Everything belongs to one event loop."""

    def __init__(self, app: App, config_path: Path, directory: Path) -> None:
        self.app = app
        self.files = ConfigFile(config_path)
        self.lifecycle = Lifecycle(directory)
        self.metrics: Metrics = metrics()
        self.gate = Gate(self.metrics)
        self.exchanges: set[Exchange] = set()
        self.trace_log = TraceLog(self.metrics)
        self.carries_budget = False
        self.salt_secret = os.environ.get(contract.SALT_SECRET_VARIABLE, "").encode()
        self.probe = Probe(self)
        self.scope: Scope = {}
        self._logged_at: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._reload()

    @classmethod
    def from_environment(cls, app: App) -> Runtime:
        path = os.environ.get(contract.CONFIG_VARIABLE, contract.DEFAULT_CONFIG_PATH)
        return cls(app, Path(path), state_dir())

    @property
    def config(self) -> RuntimeConfig | None:
        return self.files.config

    def closes(self) -> bool:
        """Whether the runtime ends thoughts itself instead of the engine."""
        if self.config is None or self.config.thinking.closure is Closure.NEVER:
            return False
        if self.config.thinking.closure is Closure.ALWAYS:
            return True
        return not self.config.thinking.budget_enforceable or self.probe.enforced is False

    def start(self, scope: Scope) -> None:
        """Begin the background work, once, with the scope of the first message of the server."""
        if self._task is not None:
            return
        self.scope = {name: scope[name] for name in ("app", "asgi", "root_path") if name in scope}
        self._task = asyncio.get_running_loop().create_task(self._keep())
        try:
            self.carries_budget = engine.carry_thinking_budget()
            engine.on_shutdown(self.scope, self.lifecycle.begin_drain)
        except Exception:  # noqa: BLE001 - the server goes on without
            self.fault("start")

    async def stop(self) -> None:
        """End the background work."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def fault(self, where: str) -> None:
        """Count a failure inside the runtime, and log it unless that was done just now. For `except` blocks."""
        self.metrics.errors.labels(where).inc()
        now = self.now()
        if now - self._logged_at.get(where, float("-inf")) >= _LOG_EVERY_SECONDS:
            self._logged_at[where] = now
            logger.exception("the request runtime failed in %s", where)  # noqa: LOG004 - see above

    async def _keep(self) -> None:
        turn = 0
        while True:
            try:
                self._look(files=turn % _FILES_EVERY == 0)
                self.probe.run_once()
            except Exception:  # noqa: BLE001 - the server goes on
                self.fault("background")
            turn += 1
            await asyncio.sleep(PROGRESS_SECONDS)

    def _look(self, *, files: bool) -> None:
        for exchange in tuple(self.exchanges):
            exchange.look()
        if files:
            self.lifecycle.refresh()
            self._reload()
            self.gate.find_pool(self.scope)
            self.gate.observe_preemptions()
            self.gate.publish()
        self.metrics.in_flight.set(self.lifecycle.in_flight)
        self.metrics.draining.set(self.lifecycle.draining)

    def _reload(self) -> None:
        changed = self.files.refresh()
        self.metrics.config_valid.set(self.config is not None and not self.files.broken)
        if changed and self.config is not None:
            self.metrics.config_loads.inc()
            self.gate.configure(self.config)
            self.trace_log.configure(self.config.trace_log)

    def now(self) -> float:
        return time.monotonic()
