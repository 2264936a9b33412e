"""A small application in vLLM's place, and a client that speaks ASGI to the middleware in front of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from reasoningpool_runtime.asgi import App, Message, Receive, Scope, Send, answer
from reasoningpool_runtime.sse import DONE, event


@dataclass
class FakeVllm:
    """Notes what it gets and streams as many chunks as it is told; `hold` keeps it from going on."""

    bodies: list[bytes] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=lambda: ["hm ", "so"])
    answer: list[str] = field(default_factory=lambda: ["Paris", "."])
    healthy: bool = True
    failure: Exception | None = None
    aborted: int = 0
    running: int = 0
    hold: asyncio.Event | None = None

    @property
    def body(self) -> dict[str, Any]:
        """The last body."""
        return json.loads(self.bodies[-1])  # type: ignore[no-any-return]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path == "/health":
            await answer(send, 200 if self.healthy else 503, b"")
            return
        if path == "/tokenize":
            text = json.loads((await receive())["body"])["prompt"]
            await answer(
                send, 200, json.dumps({"count": len(text.split()), "tokens": [1] * len(text.split())}).encode()
            )
            return
        raw = (await receive())["body"]
        self.paths.append(path)
        self.bodies.append(raw)
        if self.failure is not None:
            raise self.failure
        gone = asyncio.create_task(_gone(receive))
        self.running += 1
        try:
            work = asyncio.create_task(self._generate(scope, raw, send))
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                self.aborted += 1
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        finally:
            self.running -= 1
            gone.cancel()

    async def _generate(self, scope: Scope, raw: bytes, send: Send) -> None:
        try:
            body = json.loads(raw)
        except ValueError:
            await answer(send, 400, b'{"error":{"message":"malformed"}}')
            return
        if not isinstance(body, dict) or not body.get("stream"):
            await self._wait()
            message = {"role": "assistant", "content": "".join(self.answer), "reasoning": "".join(self.thinking)}
            whole = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
            self._leave_usage(scope)
            await answer(send, 200, json.dumps(whole, separators=(",", ":")).encode())
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for delta in [{"reasoning": text} for text in self.thinking] + [{"content": text} for text in self.answer]:
            chunk = {"choices": [{"index": 0, "delta": delta}]}
            await send({"type": "http.response.body", "body": event(chunk), "more_body": True})
            await self._wait()
        self._leave_usage(scope)
        await send({"type": "http.response.body", "body": DONE, "more_body": False})

    async def _wait(self) -> None:
        await asyncio.sleep(0)
        if self.hold is not None:
            await self.hold.wait()

    def _leave_usage(self, scope: Scope) -> None:
        thinking, output = len(self.thinking), len(self.thinking) + len(self.answer)
        usage = SimpleNamespace(
            prompt_tokens=7,
            completion_tokens=output,
            completion_tokens_details=SimpleNamespace(reasoning_tokens=thinking),
        )
        scope.setdefault("state", {})["request_metadata"] = SimpleNamespace(request_id="r", final_usage_info=usage)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@dataclass
class Reply:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[bytes] = field(default_factory=list)
    complete: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One connection: `hang_up` ends it."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._gone = asyncio.Event()
        self.reply = Reply()
        self.on_chunk: Callable[[], Awaitable[None]] | None = None

    def hang_up(self) -> None:
        self._gone.set()

    async def request(
        self, path: str, body: bytes | dict[str, Any], *, method: str = "POST", headers: dict[str, str] | None = None
    ) -> Reply:
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {"content-type": "application/json", "content-length": str(len(payload)), **(headers or {})}
        scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": path,
            "root_path": "",
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in fields.items()],
            "state": {},
        }
        parts = [payload[start : start + 65_536] for start in range(0, len(payload), 65_536)] or [b""]

        async def receive() -> Message:
            if parts:
                part = parts.pop(0)
                return {"type": "http.request", "body": part, "more_body": bool(parts)}
            await self._gone.wait()
            return {"type": "http.disconnect"}

        await self._app(scope, receive, self._send)
        return self.reply

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.reply.status = message["status"]
            self.reply.headers = {name.decode(): value.decode("latin-1") for name, value in message["headers"]}
        elif message["type"] == "http.response.body":
            self.reply.chunks.append(message.get("body", b""))
            self.reply.complete = not message.get("more_body", False)
            if self.on_chunk is not None:
                await self.on_chunk()
