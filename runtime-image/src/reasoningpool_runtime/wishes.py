"""What a client asks for, read from the body and headers of any of the APIs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reasoningpool_runtime.apis import Api
from reasoningpool_runtime.contract import EFFORT_HEADER, Thinking
from reasoningpool_runtime.errors import RefusalError

UNLIMITED = -1


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """None: the client says nothing. `thinking_tokens` may be UNLIMITED."""

    effort: str | None = None
    thinking_tokens: int | None = None
    max_tokens: int | None = None
    thinking_required: bool | None = None


def read_wishes(api: Api, body: Mapping[str, Any], headers: Mapping[str, str], thinking: Thinking) -> Wishes:
    """The client's wishes; the body goes before the header.

    Every way of asking is understood on every API, because clients and gateways mix them up.

    Raises:
        RefusalError: a field of these is malformed or misspelt (400).
    """
    _refuse_misspelt(api, body)
    effort = _text(body, "reasoning_effort")
    effort = effort or _text(_object(body, "reasoning"), "effort", "reasoning.")
    effort = effort or _text(_object(body, "output_config"), "effort", "output_config.")
    required = _boolean(body, "thinking_required")
    tokens = _tokens(body, "thinking_token_budget", lowest=UNLIMITED)
    anthropic = _object(body, "thinking")
    if anthropic:
        kind = anthropic.get("type")
        if kind == "disabled":
            required = False if required is None else required
        elif kind == "enabled" and tokens is None:
            tokens = _tokens(anthropic, "budget_tokens", lowest=0, prefix="thinking.")
    if required is None:
        required = _switched(_object(body, "chat_template_kwargs"), thinking)
    return Wishes(
        effort=effort or headers.get(EFFORT_HEADER) or None,
        thinking_tokens=tokens,
        max_tokens=_max_tokens(api, body),
        thinking_required=required,
    )


def _max_tokens(api: Api, body: Mapping[str, Any]) -> int | None:
    for name in api.max_tokens_fields:
        if (value := _tokens(body, name, lowest=0 if api is Api.COMPLETIONS else 1)) is not None:
            return value
    return None


def _switched(kwargs: Mapping[str, Any], thinking: Thinking) -> bool | None:
    """What the client sets the model's own switch to."""
    for name, off in thinking.off.items():
        if name in kwargs:
            return bool(kwargs[name] != off)
    return None


def _object(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _malformed(name, "an object")
    return value


def _text(body: Mapping[str, Any], name: str, prefix: str = "") -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise _malformed(prefix + name, "a string")
    return value


def _boolean(body: Mapping[str, Any], name: str) -> bool | None:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise _malformed(name, "true or false")
    return value


def _tokens(body: Mapping[str, Any], name: str, *, lowest: int, prefix: str = "") -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
        raise _malformed(prefix + name, f"an integer of at least {lowest}")
    return value


def _malformed(name: str, wanted: str) -> RefusalError:
    return RefusalError(400, "malformed_field", f"{name} must be {wanted}.", param=name)


# Real fields that hold one of the suspicious words.
_KNOWN = frozenset(
    {
        "reasoning",
        "reasoning_effort",
        "thinking",
        "thinking_required",
        "thinking_token_budget",
        "include_reasoning",
    }
)
_SUSPICIOUS = re.compile(r"think|reason|budget|effort")
_BUDGET = re.compile(
    r"think\w*(budget|token|len|limit|max)|max\w*(think|reason)|(budget|reason\w*)token|reason\w*budget"
)
_TOTAL = frozenset(
    {
        "maxtokens",
        "maxtoken",
        "maxcompletiontokens",
        "maxcompletiontoken",
        "maxoutputtokens",
        "maxoutputtoken",
        "maxnewtokens",
        "maxlength",
        "maxtokenstosample",
        "ntokens",
    }
)


def _refuse_misspelt(api: Api, body: Mapping[str, Any]) -> None:
    for key in body:
        if (right := right_name(api, key)) is not None:
            where = f"{api.value} requests" if right != "the top level" else ""
            message = (
                "extra_body is a parameter of the Python client, not of the API: put its fields at the top level."
                if key == "extra_body"
                else f"Unknown field {key!r} in {where}: did you mean {right!r}? vLLM would ignore it without a word."
            )
            raise RefusalError(400, "misspelt_field", message, param=key)


def right_name(api: Api, key: str) -> str | None:
    """The name that was meant by an unknown budget field, None for any other field."""
    if key == "extra_body":
        return "the top level"
    plain = re.sub(r"[^a-z]", "", key.lower())
    if plain in _TOTAL:
        return None if key in api.max_tokens_fields else api.max_tokens_field
    if key in _KNOWN or not _SUSPICIOUS.search(plain):
        return None
    if plain in {"enablethinking", "enablereasoning", "disablethinking"}:
        return "chat_template_kwargs.enable_thinking" if api.has_chat_template else "thinking_token_budget"
    if _BUDGET.search(plain) or plain in {"thinkingbudget", "reasoningbudget", "budget", "budgettokens"}:
        return "thinking_token_budget"
    if "effort" in plain:
        return "reasoning_effort"
    close = difflib.get_close_matches(key.lower(), sorted(_KNOWN), n=1, cutoff=0.8)
    return close[0] if close else None
