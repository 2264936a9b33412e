"""A streamed chat with an engine, thinking and answer apart. Standard library only."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_TIMEOUT_S = 120.0


@dataclass
class Reply:
    """What came, in order. `deltas` are the non-empty pieces as (`reasoning` or `content`, text).

    Names of headers are in lower case; `first_answer_s` is the time from the request to the answer's first text.
    """

    deltas: list[tuple[str, str]] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    finish_reason: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    first_answer_s: float | None = None

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.deltas]

    @property
    def thinking(self) -> str:
        return "".join(text for kind, text in self.deltas if kind == "reasoning").strip()

    @property
    def answer(self) -> str:
        return "".join(text for kind, text in self.deltas if kind == "content").strip()

    @property
    def thinking_tokens(self) -> int:
        return int(self.usage["completion_tokens_details"]["reasoning_tokens"])

    @property
    def completion_tokens(self) -> int:
        return int(self.usage["completion_tokens"])


def stream_chat(
    base_url: str,
    model: str,
    question: str,
    *,
    on_delta: Callable[[str, str], None] | None = None,
    timeout_s: float = _TIMEOUT_S,
    **fields: Any,
) -> Reply:
    """Ask one question and read the stream to its end.

    Args:
        base_url: without `/v1`.
        model: a served name.
        question: the user's message.
        on_delta: called with kind and text of each piece as it comes.
        timeout_s: for each read.
        fields: further fields of the request (`temperature`, `thinking_token_budget`, ...).
    """
    body = {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "stream": True,
        "stream_options": {"include_usage": True},
        **fields,
    }
    request = urllib.request.Request(
        f"{base_url}/v1/chat/completions", data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    reply, asked = Reply(), time.monotonic()
    with urllib.request.urlopen(request, timeout=timeout_s) as response:
        reply.headers = {name.lower(): value for name, value in response.headers.items()}
        for raw in response:
            line = raw.decode().strip()
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line.removeprefix("data: "))
            reply.usage = chunk.get("usage") or reply.usage
            for choice in chunk["choices"]:
                reply.finish_reason = choice.get("finish_reason") or reply.finish_reason
                for kind in ("reasoning", "content"):
                    if text := choice["delta"].get(kind):
                        reply.deltas.append((kind, text))
                        if kind == "content" and text.strip() and reply.first_answer_s is None:
                            reply.first_answer_s = time.monotonic() - asked
                        if on_delta:
                            on_delta(kind, text)
    return reply
