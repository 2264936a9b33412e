"""How large a prompt is, as far as a request body tells. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reasoningpool_runtime.apis import Api

_TEXT_FIELDS = ("text", "content", "reasoning", "reasoning_content", "arguments", "output", "input", "thinking")

_MOST_BYTES_PER_TOKEN = 6  # of a usual text and tokenizer, so that no more is taken for shared than is
_LEAST_SHARED_TOKENS = 64


@dataclass(frozen=True)
class PromptSize:
    """`tokens` counts prompts given as token ids; `texts` are to be tokenized. `prompts` is 1 but for batches."""

    texts: tuple[str, ...]
    tokens: int
    prompts: int

    @property
    def text_bytes(self) -> int:
        return sum(len(text.encode("utf-8", "surrogatepass")) for text in self.texts)


def measure(api: Api, body: Mapping[str, Any]) -> PromptSize:
    """The prompt's parts. Images and other media count nothing."""
    if api is Api.COMPLETIONS:
        return _completion(body.get("prompt"))
    parts: list[Any] = [body.get("system"), body.get("instructions")]
    parts.append(body.get("input") if api is Api.RESPONSES else body.get("messages"))
    texts = [text for part in parts for text in _texts(part)]
    if body.get("tools"):
        texts.append(json.dumps(body["tools"], ensure_ascii=False))
    return PromptSize(tuple(texts), 0, 1)


def shared_prefix(api: Api, body: Mapping[str, Any]) -> tuple[str | None, int]:
    """What requests with the same system prompt share in the prefix cache: a name, and its tokens at the least.

    Nothing where the system prompt is short, and nothing for raw completions.
    """
    if api is Api.COMPLETIONS:
        return None, 0
    system = body.get("system") or body.get("instructions")
    messages = body.get("messages")
    if not system and isinstance(messages, list) and messages and isinstance(messages[0], dict):
        system = messages[0].get("content") if messages[0].get("role") in {"system", "developer"} else None
    text = "\n".join(_texts(system))
    tokens = len(text.encode("utf-8", "surrogatepass")) // _MOST_BYTES_PER_TOKEN
    if tokens < _LEAST_SHARED_TOKENS:
        return None, 0
    own = json.dumps([body.get("cache_salt"), body.get("tools"), text])
    return hashlib.sha256(own.encode()).hexdigest(), tokens


def _completion(prompt: Any) -> PromptSize:
    if isinstance(prompt, str):
        return PromptSize((prompt,), 0, 1)
    if not isinstance(prompt, list) or not prompt:
        return PromptSize((), 0, 1)
    if all(isinstance(item, int) for item in prompt):
        return PromptSize((), len(prompt), 1)
    texts = tuple(item for item in prompt if isinstance(item, str))
    tokens = sum(len(item) for item in prompt if isinstance(item, list))
    return PromptSize(texts, tokens, len(prompt))


def _texts(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, list):
        for item in part:
            yield from _texts(item)
    elif isinstance(part, dict):
        for name in _TEXT_FIELDS:
            if name in part:
                yield from _texts(part[name])
        calls = part.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            yield json.dumps(call)
