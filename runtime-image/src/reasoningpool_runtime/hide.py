"""Takes the thinking out of responses, where a tier does not show it. Pure.

vLLM's own `include_reasoning: false` is not used: it makes vLLM apply a structured output's grammar to the thinking
(0.32, 0.33: `resolve_reasoning_ended`), and `/v1/messages` does not have it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from reasoningpool_runtime import sse
from reasoningpool_runtime.apis import Api

_CONTENT = re.compile(rb'"content":\s*"[^"]|"tool_calls":\s*\[\s*\{')
_THINKING_BLOCKS = frozenset({"thinking", "redacted_thinking"})


def without_thinking(api: Api, body: bytes) -> bytes:
    """A whole response without its thinking. What is not a JSON object (an error page) stays as it is."""
    try:
        data = json.loads(body)
    except ValueError:
        return body
    if not isinstance(data, dict):
        return body
    match api:
        case Api.CHAT:
            for choice in data.get("choices") or ():
                _hide_choice(choice, choice.get("message") or {})
        case Api.RESPONSES:
            _hide_output(data)
        case Api.MESSAGES:
            if isinstance(data.get("content"), list):
                data["content"] = [part for part in data["content"] if part.get("type") not in _THINKING_BLOCKS]
        case Api.COMPLETIONS:
            return body
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def _hide_choice(choice: dict[str, Any], message: dict[str, Any]) -> None:
    """Token texts and ids would tell the thinking as well."""
    message.pop("reasoning", None)
    message.pop("reasoning_content", None)
    for name in ("logprobs", "token_ids"):
        if choice.get(name) is not None:
            choice[name] = None


def _hide_output(response: dict[str, Any]) -> None:
    if isinstance(response.get("output"), list):
        response["output"] = [item for item in response["output"] if item.get("type") != "reasoning"]


class StreamHider:
    """Takes the thinking out of one stream, event by event."""

    def __init__(self, api: Api) -> None:
        self._splitter = sse.EventSplitter()
        handlers: dict[Api, Callable[[bytes], bytes]] = {
            Api.CHAT: self._chat,
            Api.RESPONSES: self._responses,
            Api.MESSAGES: self._messages,
            Api.COMPLETIONS: bytes,
        }
        self._handle = handlers[api]
        self._answering = False
        self._hidden: set[int] = set()
        self._dropped = 0

    def feed(self, chunk: bytes) -> bytes:
        """What the client gets of this chunk, which may be nothing."""
        return b"".join(self._handle(event) for event in self._splitter.feed(chunk))

    def close(self) -> bytes:
        """What is left at the stream's end."""
        return self._splitter.rest()

    def _chat(self, event: bytes) -> bytes:
        if b'"reasoning' not in event:
            self._answering = self._answering or bool(_CONTENT.search(event))
            if self._answering or (b'"logprobs"' not in event and b'"token_ids"' not in event):
                return event
        data = sse.payload(event)
        if not isinstance(data, dict):
            return event
        worth = bool(data.get("usage")) and not data.get("choices")
        for choice in data.get("choices") or ():
            delta = choice.get("delta") or {}
            _hide_choice(choice, delta)
            worth = worth or bool(choice.get("finish_reason") or any(value for value in delta.values()))
        return sse.event(data) if worth else b""

    def _messages(self, event: bytes) -> bytes:
        data = sse.payload(event)
        index = data.get("index") if isinstance(data, dict) else None
        if not isinstance(index, int):
            return event
        kind = data["type"]
        if kind == "content_block_start" and (data.get("content_block") or {}).get("type") in _THINKING_BLOCKS:
            self._hidden.add(index)
        if index in self._hidden:
            return b""
        data["index"] = self._shifted(index)
        return sse.event(data, kind)

    def _responses(self, event: bytes) -> bytes:
        data = sse.payload(event)
        if not isinstance(data, dict):
            return event
        index = data.get("output_index")
        if (data.get("item") or {}).get("type") == "reasoning" and isinstance(index, int):
            self._hidden.add(index)
        if (isinstance(index, int) and index in self._hidden) or "reasoning" in str(data.get("type")):
            self._dropped += 1
            return b""
        if isinstance(index, int):
            data["output_index"] = self._shifted(index)
        if isinstance(data.get("sequence_number"), int):
            data["sequence_number"] -= self._dropped
        if isinstance(data.get("response"), dict):
            _hide_output(data["response"])
        return sse.event(data, data.get("type"))

    def _shifted(self, index: int) -> int:
        return index - sum(hidden < index for hidden in self._hidden)
