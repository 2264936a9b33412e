"""Requests and tiers of a few lines."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from reasoningpool.requests.log import RequestLog
from reasoningpool.requests.read_log import read_log
from reasoningpool.requests.tier_requests import MixOptions, TierRequests, tier_requests
from reasoningpool.sizing.types import Effort


def effort(name: str = "high", thinking: int = 4096, answer: int = 1024, **changes: Any) -> Effort:
    fields: dict[str, Any] = {"prompt_tokens": 4096, "share": 100.0} | changes
    return Effort(name=name, thinking_tokens=thinking, answer_tokens=answer, **fields)


def log(output: list[int], **columns: Any) -> RequestLog:
    arrays = {key: np.array(value) if isinstance(value, list) else value for key, value in columns.items()}
    return RequestLog(output=np.array(output), **{"runs": len(output)} | arrays)


def requests(found: RequestLog, *efforts: Effort, **options: Any) -> TierRequests:
    return tier_requests(found, "reasoning", efforts or (effort(),), MixOptions(**options))


def read(text: str | bytes, **options: Any) -> RequestLog:
    return read_log(io.BytesIO(text.encode() if isinstance(text, str) else text), **options)
