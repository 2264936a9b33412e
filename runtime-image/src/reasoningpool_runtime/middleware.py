"""The ASGI middleware that vLLM loads: `--middleware reasoningpool_runtime.Middleware`.

It is the outermost one: vLLM's own authentication comes after it, so nothing here trusts a caller.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from reasoningpool_runtime import asgi, inner
from reasoningpool_runtime.apis import GOVERNED, UNGOVERNED
from reasoningpool_runtime.contract import PROBE_PATH, READY_PATH
from reasoningpool_runtime.errors import RefusalError, error_body
from reasoningpool_runtime.exchange import Exchange
from reasoningpool_runtime.runtime import Runtime

if TYPE_CHECKING:
    from reasoningpool_runtime.asgi import App, Message, Receive, Scope, Send


class Middleware:
    """Governs the requests that generate text; everything else passes untouched."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.runtime = Runtime.from_environment(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self.runtime.start(scope)
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path == READY_PATH:
            await self._ready(scope, send)
        elif path == PROBE_PATH:
            await self._probe(scope, send)
        elif scope["method"] == "POST" and self.runtime.config is not None and path in GOVERNED:
            exchange = Exchange(
                self.runtime, self.runtime.config, GOVERNED[path], scope=scope, receive=receive, send=send
            )
            await exchange.run()
        elif self._refused(path):
            await self._refuse_ungoverned(path, send)
        else:
            await self.app(scope, receive, send)

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def started(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self.runtime.start(scope)
            elif message["type"].startswith("lifespan.shutdown"):
                await self.runtime.stop()
            await send(message)

        await self.app(scope, receive, started)

    async def _ready(self, scope: Scope, send: Send) -> None:
        """200 while new requests are welcome; vLLM's /health stays 200 while it drains."""
        reason = "draining" if self.runtime.lifecycle.draining else None
        if reason is None and not await self._healthy(scope):
            reason = "engine is dead"
        body = json.dumps({"ready": reason is None, "reason": reason}).encode()
        await asgi.answer(send, 200 if reason is None else 503, body)

    async def _healthy(self, scope: Scope) -> bool:
        try:
            return await inner.healthy(self.app, scope)
        except Exception:  # noqa: BLE001 - an unhealthy server may fail in any way
            self.runtime.fault("health")
            return False

    async def _probe(self, scope: Scope, send: Send) -> None:
        if scope["method"] == "POST":
            await self.runtime.probe.run_again()
        await asgi.answer(send, 200, json.dumps(self.runtime.probe.result()).encode())

    def _refused(self, path: str) -> bool:
        config = self.runtime.config
        return path in UNGOVERNED and config is not None and not config.other_generating_paths

    async def _refuse_ungoverned(self, path: str, send: Send) -> None:
        refusal = RefusalError(
            404,
            "ungoverned_path",
            f"{path} generates without budgets and is closed on this server. Use {', '.join(GOVERNED)}.",
        )
        await asgi.answer(send, refusal.status, error_body(None, refusal))
