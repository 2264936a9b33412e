"""Server-sent events as bytes."""

from __future__ import annotations

import json
from typing import Any

DONE = b"data: [DONE]\n\n"


class EventSplitter:
    """Cuts a stream of bytes into whole events, each with its blank line."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that are complete now."""
        data = self._rest + chunk if self._rest else chunk
        *events, self._rest = data.split(b"\n\n")
        return [event + b"\n\n" for event in events]

    def rest(self) -> bytes:
        """What never became a whole event."""
        rest, self._rest = self._rest, b""
        return rest


def payload(event: bytes) -> Any:
    """The JSON of an event; None for comments, `[DONE]` and anything else that holds none."""
    for line in event.split(b"\n"):
        if line.startswith(b"data:"):
            text = line[5:].strip()
            if text.startswith(b"{"):
                try:
                    return json.loads(text)
                except ValueError:
                    return None
    return None


def event(data: Any, name: str | None = None) -> bytes:
    """An event as vLLM writes it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {text}\n\n".encode("utf-8", "backslashreplace")
