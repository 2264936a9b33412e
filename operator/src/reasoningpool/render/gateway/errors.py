"""Errors of the gateway in OpenAI's shape, which every client library understands."""

from __future__ import annotations

import json
from typing import Any, Final

RETRY_AFTER_SECONDS: Final = 5


def error_body(status: int, kind: str, message: str) -> str:
    """The body of a fixed answer."""
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": status}})


# What Envoy itself may answer with; the fixed answers of routes are in shape already.
_KINDS: Final = {
    400: ("invalid_request_error", ""),
    403: ("invalid_request_error", ""),
    408: ("timeout", "the request was not sent in time: "),
    413: ("invalid_request_error", "the request body is too large: "),
    426: ("invalid_request_error", ""),
    429: ("rate_limit", ""),
    431: ("invalid_request_error", ""),
    500: ("gateway_error", ""),
    502: ("gateway_error", "the replica broke off: "),
    503: ("service_unavailable", "no replica can take the request now: "),
    504: ("timeout", ""),
}
_RETRIED: Final = frozenset({429, 503})


def local_replies() -> dict[str, Any]:
    """What Envoy says itself (no replica, a body too large, a time that is over), in JSON and with Retry-After."""
    return {"mappers": [_mapper(status, kind, before) for status, (kind, before) in _KINDS.items()]}


def _mapper(status: int, kind: str, before: str) -> dict[str, Any]:
    mapper: dict[str, Any] = {"filter": _status_is(status), "body_format_override": _format(kind, before)}
    if status in _RETRIED:
        header = {"key": "retry-after", "value": str(RETRY_AFTER_SECONDS)}
        mapper["headers_to_add"] = [{"header": header, "append_action": "ADD_IF_ABSENT"}]
    return mapper


def _format(kind: str, before: str) -> dict[str, Any]:
    return {
        "json_format": {
            "error": {
                "message": f"{before}%LOCAL_REPLY_BODY%",
                "type": kind,
                "param": None,
                "code": "%RESPONSE_CODE%",
            }
        }
    }


def _status_is(code: int) -> dict[str, Any]:
    value = {"default_value": code, "runtime_key": f"reasoningpool.local_reply.{code}"}
    return {"status_code_filter": {"comparison": {"op": "EQ", "value": value}}}
