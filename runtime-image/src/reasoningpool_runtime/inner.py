"""A request of the runtime's own to the application behind it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Self

from reasoningpool_runtime.asgi import App, Message, Scope

_INHERITED = frozenset({b"authorization", b"x-request-id", b"x-session-id", b"x-vllm-priority", b"traceparent"})
_ENDED = None  # in the queue of chunks
_QUEUE_CHUNKS = 64  # the application waits when nobody reads


class InnerCallError(Exception):
    """The application failed or ended without a response."""


class InnerCall:
    """One request and its response, which arrives while the application goes on.

    Used as an async context manager: leaving it aborts whatever still runs, as a client that hangs up would. It
    carries the outer request's key, request id and priority; `cache_salt` and tenant travel in the body, and its
    tokens belong to the outer request's admission.
    """

    def __init__(self, app: App, outer: Scope, path: str, body: Mapping[str, Any]) -> None:
        self._app = app
        payload = json.dumps(body).encode()
        self._scope = _scope(outer, "POST", path, payload)
        self._payload = payload
        self._hung_up = asyncio.Event()
        self._started = asyncio.Event()
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(_QUEUE_CHUNKS)
        self._given = False
        self._task: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []

    @property
    def scope(self) -> Scope:
        """Where vLLM leaves the usage."""
        return self._scope

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        try:
            await self._started.wait()
        except asyncio.CancelledError:
            await self.abort()
            raise
        if not self.status:
            await self.abort()
            raise InnerCallError(f"{self._scope['path']}: no response") from self._failure
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.abort()

    async def abort(self) -> None:
        """Hang up. The engine drops the request; returns when the application has ended."""
        self._hung_up.set()
        if self._task is None:
            return
        reader = asyncio.ensure_future(self._drop_chunks())
        done, _ = await asyncio.wait({self._task}, timeout=5)
        if not done:
            self._task.cancel()
        reader.cancel()
        await asyncio.gather(self._task, reader, return_exceptions=True)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises InnerCallError where the application fails in its midst."""
        while (chunk := await self._chunks.get()) is not _ENDED:
            yield chunk
        if self._failure is not None:
            raise InnerCallError(f"{self._scope['path']}: failed") from self._failure

    async def json(self) -> Any:
        """The whole body, parsed. Raises InnerCallError where it is none."""
        body = b"".join([chunk async for chunk in self.chunks()])
        try:
            return json.loads(body)
        except ValueError as error:
            raise InnerCallError(f"{self._scope['path']}: answered with something that is no JSON") from error

    async def _run(self) -> None:
        try:
            await self._app(self._scope, self._receive, self._send)
        except Exception as error:  # noqa: BLE001 - told to whoever reads the response
            self._failure = error
        finally:
            self._started.set()
            await self._chunks.put(_ENDED)

    async def _receive(self) -> Message:
        if not self._given:
            self._given = True
            return {"type": "http.request", "body": self._payload, "more_body": False}
        await self._hung_up.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
            self._started.set()
        elif message["type"] == "http.response.body" and (chunk := message.get("body")) and not self._hung_up.is_set():
            await self._chunks.put(chunk)

    async def _drop_chunks(self) -> None:
        while True:
            await self._chunks.get()


def _scope(outer: Scope, method: str, path: str, payload: bytes) -> Scope:
    headers = [(name, value) for name, value in outer.get("headers", ()) if name.lower() in _INHERITED]
    headers += [(b"content-type", b"application/json"), (b"content-length", str(len(payload)).encode())]
    root = outer.get("root_path", "")
    scope = {
        "type": "http",
        "asgi": outer.get("asgi", {"version": "3.0", "spec_version": "2.3"}),
        "http_version": "1.1",
        "method": method,
        "scheme": outer.get("scheme", "http"),
        "path": root + path,
        "raw_path": (root + path).encode(),
        "query_string": b"",
        "root_path": root,
        "headers": headers,
        "client": outer.get("client"),
        "server": outer.get("server"),
        "state": {},
    }
    if "app" in outer:
        scope["app"] = outer["app"]
    return scope


async def healthy(app: App, outer: Scope) -> bool:
    """Whether vLLM's own /health is well."""
    status = 0

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]

    await app(_scope(outer, "GET", "/health", b""), receive, send)
    return status == 200
