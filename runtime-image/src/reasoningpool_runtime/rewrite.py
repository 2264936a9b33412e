"""Writes a budget into a request body. Pure: the body given is not changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reasoningpool_runtime.apis import Api
from reasoningpool_runtime.budgets import Budget
from reasoningpool_runtime.contract import Thinking

# Ways of asking that the budget replaces.
_ANSWERED = ("reasoning_effort", "thinking_required", "thinking_token_budget", "thinking")


def with_budget(api: Api, body: Mapping[str, Any], budget: Budget, thinking: Thinking) -> dict[str, Any]:
    """The body that vLLM gets.

    The thinking budget is left out where vLLM would answer it with 400 or does not take it in the body
    (`Api.has_budget_field`); `engine.THINKING_BUDGET` carries it then.
    """
    new = {key: value for key, value in body.items() if key not in _ANSWERED}
    for name in api.max_tokens_fields:
        new.pop(name, None)
    new[api.max_tokens_field] = budget.max_tokens
    _write_effort(api, new, budget.effort.template_effort if budget.thinks else None)
    if api.has_budget_field and thinking.supported and thinking.budget_enforceable:
        new["thinking_token_budget"] = budget.thinking_tokens
    switch = thinking.on if budget.thinks else thinking.off
    if api.has_chat_template and thinking.supported and switch:
        new["chat_template_kwargs"] = {**(body.get("chat_template_kwargs") or {}), **switch}
    return new


def _write_effort(api: Api, new: dict[str, Any], effort: str | None) -> None:
    """Where the chat template finds its `reasoning_effort`, in each API's own field."""
    match api:
        case Api.CHAT | Api.COMPLETIONS:
            new.pop("reasoning", None)
            if effort is not None and api is Api.CHAT:
                new["reasoning_effort"] = effort
        case Api.RESPONSES:
            _write_nested(new, "reasoning", effort)
        case Api.MESSAGES:
            new.pop("reasoning", None)
            _write_nested(new, "output_config", effort)


def _write_nested(new: dict[str, Any], name: str, effort: str | None) -> None:
    rest = {key: value for key, value in (new.get(name) or {}).items() if key != "effort"}
    if effort is not None:
        rest["effort"] = effort
    if rest:
        new[name] = rest
    else:
        new.pop(name, None)
