"""What the request runtime costs in the API server's process: processor time per chunk of a stream and per request.

The application behind it does next to nothing, so that the difference is the runtime's own; there is no admission.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reasoningpool_runtime import contract
from reasoningpool_runtime.contract import Effort, RuntimeConfig, Thinking
from reasoningpool_runtime.middleware import Middleware

if TYPE_CHECKING:
    from reasoningpool_runtime.asgi import App, Message, Receive, Scope, Send

_CHUNKS: Final = 20_000  # of a stream, half of them thinking
_REQUESTS: Final = 300
_ROUNDS: Final = 7  # the quickest of them counts: others were disturbed
_CONFIG: Final = RuntimeConfig(
    tier="bench",
    efforts=(Effort(name="medium", thinking_tokens=1024, answer_tokens=768),),
    default_effort="medium",
    prompt_tokens=8192,
    thinking=Thinking(on={"enable_thinking": True}, off={"enable_thinking": False}),
)


def _chunk(delta: dict[str, str]) -> Message:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, "token_ids": None}
    data = {"id": "chatcmpl-b74b97eda3112e7a", "object": "chat.completion.chunk", "choices": [choice]}
    body = f"data: {json.dumps(data, separators=(',', ':'))}\n\n".encode()
    return {"type": "http.response.body", "body": body, "more_body": True}


_THINKING, _ANSWER = _chunk({"reasoning": " asks"}), _chunk({"content": " capital"})


async def _application(scope: Scope, receive: Receive, send: Send) -> None:
    body = json.loads((await receive())["body"])
    chunks = _CHUNKS if body.get("stream") else 0
    kind = b"text/event-stream" if chunks else b"application/json"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
    for message in (_THINKING, _ANSWER):
        for _ in range(chunks // 2):
            await send(message)
    await send({"type": "http.response.body", "body": b"{}", "more_body": False})


async def _request(app: App, *, stream: bool) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello there " * 100}], "stream": stream}
    parts = [json.dumps(body).encode()]
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": []}

    async def receive() -> Message:
        if parts:
            return {"type": "http.request", "body": parts.pop(), "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError("nobody hangs up here")

    async def send(_message: Message) -> None:
        """Dropped."""

    await app(scope, receive, send)


async def _seconds(app: App, *, stream: bool, times: int) -> float:
    """Processor seconds of so many requests."""
    quickest = float("inf")
    for _ in range(_ROUNDS):
        began = time.process_time()
        for _ in range(times):
            await _request(app, stream=stream)
        quickest = min(quickest, time.process_time() - began)
    return quickest


async def _measure() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "config.json"
        path.write_text(contract.dumps(_CONFIG))
        os.environ[contract.CONFIG_VARIABLE] = str(path)
        os.environ[contract.STATE_DIR_VARIABLE] = directory
        middleware = Middleware(_application)
        for what, stream, times, per in (("chunk", True, 1, _CHUNKS), ("request", False, _REQUESTS, _REQUESTS)):
            bare = await _seconds(_application, stream=stream, times=times) / per
            governed = await _seconds(middleware, stream=stream, times=times) / per
            print(f"per {what}: {(governed - bare) * 1e6:.2f} us of processor time on top of {bare * 1e6:.2f} us")
        await middleware.runtime.stop()


def main() -> None:
    """The benchmark."""
    asyncio.run(_measure())
