"""Removes the thinking of earlier turns from a request. Pure.

Models are trained to see earlier answers without the thinking before them, and it fills the context and the KV cache.
The result depends on the conversation only, so the prefix of the next turn is the same and hits the prefix cache.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from reasoningpool_runtime.apis import Api
from reasoningpool_runtime.contract import KeepThinking

# Tags of the families that vLLM's reasoning parsers read (0.33); a conversation may have begun with another model.
_TAGS = (
    ("<think>", "</think>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought", "<channel|>"),
    ("<|channel|>analysis<|message|>", "<|end|>"),
)
_FIELDS = ("reasoning", "reasoning_content", "thinking_blocks", "reasoning_details")
_PARTS = frozenset({"thinking", "redacted_thinking", "reasoning"})


@dataclass(frozen=True)
class Stripped:
    """`messages`: how many lost something; `characters`: how much text they lost."""

    body: dict[str, Any]
    messages: int
    characters: int


@lru_cache(maxsize=8)
def _patterns(start: str, end: str) -> tuple[tuple[re.Pattern[str], ...], re.Pattern[str]]:
    tags = dict.fromkeys(((start, end), *_TAGS))
    closed = tuple(
        # From the start tag to the end tag, or to the end of the text where the thought was cut.
        re.compile(rf"\A\s*{re.escape(first)}.*?(?:{re.escape(last)}\s*|\Z)", re.DOTALL)
        for first, last in tags
    )
    # A template that opens the thinking itself leaves only the end tag in the answer. A text that merely mentions the
    # tag is told from it by what follows: the tag stands at the end of a line.
    headless = re.compile(rf"\A(?:(?!{re.escape(start)}).)*?{re.escape(end)}[ \t]*(?:\n\s*|\Z)", re.DOTALL)
    return closed, headless


def strip_text(text: str, start: str = "<think>", end: str = "</think>") -> str:
    """The text without the thinking at its beginning."""
    closed, headless = _patterns(start, end)
    for pattern in closed:
        if match := pattern.match(text):
            return text[match.end() :]
    if end in text and (match := headless.match(text)):
        return text[match.end() :]
    return text


def strip_history(
    api: Api, body: Mapping[str, Any], keep: KeepThinking, *, start: str = "<think>", end: str = "</think>"
) -> Stripped:
    """The body without earlier thinking. A last message of the assistant is being continued and stays as it is."""
    field = "input" if api is Api.RESPONSES else "messages"
    items = body.get(field)
    if keep is KeepThinking.ALWAYS or api is Api.COMPLETIONS or not isinstance(items, list):
        return Stripped(dict(body), 0, 0)
    kept_from = _last_user(items) if keep is KeepThinking.TOOL_CALLS else len(items) - 1
    new: list[Any] = []
    messages = characters = 0
    for position, item in enumerate(items):
        if position >= kept_from or not isinstance(item, dict):
            new.append(item)
            continue
        stripped, lost = _strip_item(item, start, end)
        if lost:
            messages += 1
            characters += lost
        if stripped is not None:
            new.append(stripped)
    if not messages:
        return Stripped(dict(body), 0, 0)
    return Stripped({**body, field: new}, messages, characters)


def _last_user(items: list[Any]) -> int:
    """Where the current turn begins: tool results count as part of a turn, also in Anthropic's user messages."""
    for position in range(len(items) - 1, -1, -1):
        item = items[position]
        if isinstance(item, dict) and item.get("role") == "user" and not _holds_tool_results(item.get("content")):
            return position
    return 0


def _holds_tool_results(content: Any) -> bool:
    return isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") == "tool_result" for part in content
    )


def _strip_item(item: dict[str, Any], start: str, end: str) -> tuple[dict[str, Any] | None, int]:
    if item.get("type") == "reasoning":  # an item of its own in the Responses API
        return None, max(1, len(str(item.get("content") or item.get("summary") or "")))
    if item.get("role") != "assistant":
        return item, 0
    lost = sum(max(1, len(str(item[name]))) for name in _FIELDS if item.get(name))
    new = {key: value for key, value in item.items() if key not in _FIELDS}
    content = item.get("content")
    if isinstance(content, str):
        new["content"] = strip_text(content, start, end)
        lost += len(content) - len(new["content"])
    elif isinstance(content, list):
        parts = [_strip_part(part, start, end) for part in content]
        lost += sum(gone for _, gone in parts)
        new["content"] = [part for part, _ in parts if part is not None] or ""
    return (new, lost) if lost else (item, 0)


def _strip_part(part: Any, start: str, end: str) -> tuple[Any, int]:
    if not isinstance(part, dict):
        return part, 0
    if part.get("type") in _PARTS:
        return None, max(1, len(str(part.get("thinking") or part.get("text") or "")))
    text = part.get("text")
    if not isinstance(text, str):
        return part, 0
    stripped = strip_text(text, start, end)
    lost = len(text) - len(stripped)
    return ({**part, "text": stripped}, lost) if lost else (part, 0)
