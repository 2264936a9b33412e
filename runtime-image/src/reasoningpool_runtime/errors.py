"""Refusals and how each API words them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from reasoningpool_runtime.apis import Api

_ANTHROPIC_TYPES = {413: "request_too_large", 500: "api_error", 503: "overloaded_error"}


@dataclass
class RefusalError(Exception):
    """A request that is answered by the runtime. `reason` labels the metric and is the error's code."""

    status: int
    reason: str
    message: str
    param: str | None = None
    retry_after_seconds: int | None = None


def error_body(api: Api | None, refusal: RefusalError) -> bytes:
    """The body in the shape that the API's clients read."""
    if api is Api.MESSAGES:
        kind = _ANTHROPIC_TYPES.get(refusal.status, "invalid_request_error")
        return json.dumps({"type": "error", "error": {"type": kind, "message": refusal.message}}).encode()
    kind = "invalid_request_error" if refusal.status < 500 else "server_error"
    error = {"message": refusal.message, "type": kind, "param": refusal.param, "code": refusal.reason}
    return json.dumps({"error": error}).encode()
