"""Finds out whether this engine holds thinking budgets, with this model, parser and speculative setting."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from reasoningpool_runtime import engine
from reasoningpool_runtime.inner import InnerCall, InnerCallError

if TYPE_CHECKING:
    from reasoningpool_runtime.runtime import Runtime

_BUDGET_TOKENS = 12
_MAX_TOKENS = 40
_ATTEMPTS = 3  # a model may end a short thought by itself, which shows nothing
_LEAST_SECONDS_BETWEEN = 10.0
_QUESTION = "Think step by step: list the prime numbers below one hundred, one by one, and check each of them."


class Probe:
    """Asks the engine once, and again on demand.

    `enforced` is None while nothing is known: nobody has asked, the model does not think, or its thought was too short.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._asked_at = float("-inf")
        self.enforced: bool | None = None
        self.detail = "not asked yet"

    def result(self) -> dict[str, Any]:
        """The last result, for the probe's path."""
        return {"enforced": self.enforced, "detail": self.detail}

    def run_once(self) -> None:
        """Ask in the background, the first time that there is a configuration."""
        if self._task is None and self._runtime.config is not None and engine.model_of(self._runtime.scope):
            self._task = asyncio.get_running_loop().create_task(self.run_again())

    async def run_again(self) -> None:
        """Ask the engine, unless that was done a moment ago."""
        async with self._lock:
            if time.monotonic() - self._asked_at < _LEAST_SECONDS_BETWEEN:
                return
            try:
                self.enforced, self.detail = await self._ask()
            except Exception as error:  # noqa: BLE001 - a failed probe says nothing about the server
                self.enforced, self.detail = None, f"{type(error).__name__}: {error}"
            self._asked_at = time.monotonic()
            self._runtime.metrics.enforced.set(-1 if self.enforced is None else int(self.enforced))

    async def _ask(self) -> tuple[bool | None, str]:
        config = self._runtime.config
        if config is None or not config.thinking.supported:
            return None, "the model does not think"
        if not config.thinking.budget_enforceable:
            return False, "the reasoning parser has no start and end strings"
        detail = ""
        for _ in range(_ATTEMPTS):
            thinking = await self._thinking_tokens(dict(config.thinking.on))
            if thinking > _BUDGET_TOKENS:
                return False, f"{thinking} thinking tokens with a budget of {_BUDGET_TOKENS}"
            detail = f"{thinking} thinking tokens with a budget of {_BUDGET_TOKENS}"
            if thinking >= _BUDGET_TOKENS - 2:  # the template's own tokens count as well
                return True, detail
        return None, f"{detail}: too short a thought to tell"

    async def _thinking_tokens(self, switch: dict[str, Any]) -> int:
        scope = dict(self._runtime.scope)
        if key := engine.api_key_of(scope):
            scope["headers"] = [(b"authorization", f"Bearer {key}".encode())]
        body = {
            "model": engine.model_of(scope),
            "messages": [{"role": "user", "content": _QUESTION}],
            "max_completion_tokens": _MAX_TOKENS,
            "thinking_token_budget": _BUDGET_TOKENS,
            "chat_template_kwargs": switch,
        }
        async with InnerCall(self._runtime.app, scope, "/v1/chat/completions", body) as call:
            answer = await call.json()
        if call.status != 200:
            raise InnerCallError(f"answered with {call.status}: {answer}")
        return int(answer["usage"]["completion_tokens_details"]["reasoning_tokens"])
