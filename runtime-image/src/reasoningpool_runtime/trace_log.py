"""A sampled log of prompts, thinking and answers. Off unless the tier turns it on."""

from __future__ import annotations

import importlib
import json
import logging
import os
import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from reasoningpool_runtime import contract, sse
from reasoningpool_runtime.apis import Api

if TYPE_CHECKING:
    from reasoningpool_runtime.engine import Usage
    from reasoningpool_runtime.metrics import Metrics

logger = logging.getLogger("reasoningpool.runtime")

Redaction = Callable[[dict[str, Any]], "dict[str, Any] | None"]


class TraceLog:
    """Decides which requests are recorded, and writes them."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._draw = draw
        self._settings = contract.TraceLog()
        self._redact: Redaction | None = None
        self._minute = 0.0
        self._in_minute = 0

    def configure(self, settings: contract.TraceLog) -> None:
        """Use other settings. A redaction that cannot be loaded turns the log off."""
        self._settings, self._redact = settings, None
        if settings.redaction:
            try:
                module, _, name = settings.redaction.partition(":")
                self._redact = getattr(importlib.import_module(module), name)
            except (ImportError, AttributeError, ValueError):
                logger.exception("trace log off: cannot load the redaction %r", settings.redaction)
                self._settings = contract.TraceLog()

    def begin(self, tenant: str | None, tier: str, effort: str, body: Mapping[str, Any]) -> Trace | None:
        """A trace to fill, None for a request that is not recorded."""
        settings = self._settings
        if not settings.enabled or self._draw() * 1000 >= settings.sample_permille:
            return None
        if tenant is not None and tenant in settings.opted_out_tenants:
            return None
        if not self._within_rate():
            self._metrics.trace_records.labels("rate_limited").inc()
            return None
        request = body.get("messages", body.get("input", body.get("prompt")))
        return Trace(self, {"tenant": tenant, "tier": tier, "effort": effort, "request": request})

    def write(self, record: dict[str, Any]) -> None:
        """Redact, shorten and append a record; a failure costs the record only."""
        settings = self._settings
        redacted = self._redact(record) if self._redact else record
        if redacted is None or not settings.enabled:
            self._metrics.trace_records.labels("redacted").inc()
            return
        line = _shortened(redacted, settings.max_record_bytes)
        handle = os.open(settings.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "ab") as file:
            if file.tell() + len(line) > settings.max_file_bytes:
                self._metrics.trace_records.labels("file_full").inc()
                return
            file.write(line)
        self._metrics.trace_records.labels("written").inc()

    @property
    def most_bytes(self) -> int:
        return self._settings.max_record_bytes

    def _within_rate(self) -> bool:
        now = self._clock()
        if now - self._minute >= 60:
            self._minute, self._in_minute = now, 0
        self._in_minute += 1
        return self._in_minute <= self._settings.max_records_per_minute


class Trace:
    """One recorded request. It keeps no more of a response than a record may hold."""

    def __init__(self, log: TraceLog, record: dict[str, Any]) -> None:
        self._log = log
        self._record = record
        self._chunks: list[bytes] = []
        self._bytes = 0

    def chunk(self, body: bytes) -> None:
        """A piece of the response, thinking included."""
        # An event is some ten times longer than its text.
        if self._bytes < self._log.most_bytes * 16:
            self._chunks.append(body)
            self._bytes += len(body)

    def write(self, api: Api, *, streamed: bool, usage: Usage | None) -> None:
        """Write the record."""
        thinking, answer = _texts(api, b"".join(self._chunks), streamed=streamed)
        self._record |= {"api": api.value, "time": time.time(), "thinking": thinking, "answer": answer}
        if usage is not None:
            self._record["usage"] = {"prompt": usage.prompt, "output": usage.output, "thinking": usage.thinking}
        self._log.write(self._record)


def _shortened(record: dict[str, Any], most: int) -> bytes:
    """The record's line, with texts cut in half until it fits."""
    line = json.dumps(record).encode() + b"\n"
    while len(line) > most:
        texts = {name: value for name, value in record.items() if name in {"request", "thinking", "answer"} and value}
        if not texts:
            return b""
        longest = max(texts, key=lambda name: len(json.dumps(texts[name])))
        text = texts[longest] if isinstance(texts[longest], str) else json.dumps(texts[longest])
        record = {**record, longest: text[: len(text) // 2], "shortened": True}
        line = json.dumps(record).encode() + b"\n"
    return line


def _texts(api: Api, raw: bytes, *, streamed: bool) -> tuple[str, str]:
    """Thinking and answer of a chat or a completion; the raw response as the answer of the other APIs."""
    if api not in {Api.CHAT, Api.COMPLETIONS}:
        return "", raw.decode("utf-8", "replace")
    parts = [sse.payload(event + b"\n") for event in raw.split(b"\n\n")] if streamed else [_json(raw)]
    thinking, answer = [], []
    for part in parts:
        for choice in (part or {}).get("choices") or ():
            message = choice.get("delta") or choice.get("message") or {}
            thinking.append(message.get("reasoning") or "")
            answer.append(message.get("content") or choice.get("text") or "")
    return "".join(thinking), "".join(answer)


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return None
