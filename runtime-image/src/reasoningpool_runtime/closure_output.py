"""What the client gets of a request that ran in one or two parts: a stream of chunks, or one whole response."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from reasoningpool_runtime import asgi, contract, sse
from reasoningpool_runtime.asgi import Send
from reasoningpool_runtime.engine import Usage

_CLOSED_COMMENT = b": reasoningpool ended the thinking at its budget\n\n"


class Output(Protocol):
    """Takes the chunks of a chat stream, then perhaps the text of its continuation."""

    async def start(self, headers: list[tuple[bytes, bytes]]) -> None: ...

    async def chunk(self, data: dict[str, Any]) -> None: ...

    async def text(self, text: str, finish_reason: str | None) -> None: ...

    async def end(self, usage: Usage | None = None) -> None: ...

    async def fail(self, message: str) -> bool:
        """End with an error. False: nothing has been sent yet, so another response still can be."""
        ...


class StreamOutput:
    """Server-sent events, as vLLM writes them."""

    def __init__(self, send: Send, body: Mapping[str, Any]) -> None:
        self._send = send
        self._tells_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        self._like: dict[str, Any] = {}
        self._started = False
        self._continued = False

    async def start(self, headers: list[tuple[bytes, bytes]]) -> None:
        self._started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def chunk(self, data: dict[str, Any]) -> None:
        self._like = {name: data[name] for name in ("id", "object", "created", "model") if name in data}
        if data.get("choices") or self._tells_usage:
            await self._write(sse.event(data))

    async def text(self, text: str, finish_reason: str | None) -> None:
        if not self._continued:
            self._continued = True
            await self._write(_CLOSED_COMMENT)
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}
        await self._write(sse.event({**self._like, "choices": [choice]}))

    async def end(self, usage: Usage | None = None) -> None:
        if usage is not None and self._tells_usage:
            await self._write(sse.event({**self._like, "choices": [], "usage": _usage(usage)}))
        await self._send({"type": "http.response.body", "body": sse.DONE})

    async def fail(self, message: str) -> bool:
        if not self._started:
            return False
        error = {"message": message, "type": "server_error", "param": None, "code": "engine_failed"}
        await self._write(sse.event({"error": error}))
        await self.end()
        return True

    async def _write(self, event: bytes) -> None:
        await self._send({"type": "http.response.body", "body": event, "more_body": True})


class WholeOutput:
    """One JSON response, put together from the chunks."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._like: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {"reasoning": [], "content": []}
        self._finish_reason: str | None = None
        self._stop_reason: Any = None
        self._usage: dict[str, Any] | None = None
        self._closed = False

    async def start(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Sent at the end, when it is known whether the thinking was ended."""

    async def chunk(self, data: dict[str, Any]) -> None:
        self._like = {name: data[name] for name in ("id", "created", "model") if name in data}
        self._usage = data.get("usage") or self._usage
        for choice in data.get("choices") or ():
            for name, texts in self._texts.items():
                if text := choice["delta"].get(name):
                    texts.append(text)
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
            self._stop_reason = choice.get("stop_reason", self._stop_reason)

    async def text(self, text: str, finish_reason: str | None) -> None:
        self._closed = True
        self._texts["content"].append(text)
        self._finish_reason = finish_reason or self._finish_reason

    async def fail(self, message: str) -> bool:  # noqa: ARG002 - told by the other response
        return False

    async def end(self, usage: Usage | None = None) -> None:
        message: dict[str, Any] = {"role": "assistant"}
        message |= {name: "".join(texts) or None for name, texts in self._texts.items()}
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": self._finish_reason,
            "stop_reason": self._stop_reason,
        }
        whole = {
            **self._like,
            "object": "chat.completion",
            "choices": [choice],
            "usage": _usage(usage) if usage is not None else self._usage,
        }
        await asgi.answer(
            self._send, 200, json.dumps(whole).encode(), {contract.CLOSED_HEADER: "true"} if self._closed else None
        )


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "total_tokens": usage.prompt + usage.output,
        "completion_tokens_details": {"reasoning_tokens": usage.thinking},
    }
