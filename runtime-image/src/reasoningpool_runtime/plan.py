"""What the runtime makes of one request. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reasoningpool_runtime import contract
from reasoningpool_runtime.apis import Api
from reasoningpool_runtime.budgets import Budget, decide
from reasoningpool_runtime.contract import RuntimeConfig, TenantSource
from reasoningpool_runtime.errors import RefusalError
from reasoningpool_runtime.history import Stripped, strip_history
from reasoningpool_runtime.prompt import PromptSize, measure, shared_prefix
from reasoningpool_runtime.rewrite import with_budget
from reasoningpool_runtime.tenants import Tenant, identify
from reasoningpool_runtime.wishes import Wishes, read_wishes

# What /v1/completions generates when the client names no total, in OpenAI's API and in vLLM.
_COMPLETIONS_DEFAULT_TOKENS = 16


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """What this server can do; found out at start-up.

    `engine_holds_budgets`: the engine ends a thought at its budget. `carries_budget`: also where the API has no field
    for it. `closes`: the runtime ends thoughts itself.
    """

    engine_holds_budgets: bool = True
    carries_budget: bool = True
    closes: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is sent to vLLM, and what the runtime does beside it.

    `prefix`: see `prompt.shared_prefix`. `carried_budget` is for `engine.THINKING_BUDGET`. `closing`: the runtime
    watches the thinking and ends it. `enforced`: something ends the thinking at its budget.
    """

    body: dict[str, Any]
    budget: Budget
    tenant: Tenant
    prompt: PromptSize
    prefix: tuple[str | None, int]
    outputs: int
    streamed: bool
    priority: int
    hides: bool
    closing: bool
    enforced: bool
    carried_budget: int | None
    stripped: Stripped
    headers: dict[str, str]


def make_plan(
    config: RuntimeConfig,
    api: Api,
    body: Mapping[str, Any],
    headers: Mapping[str, str],
    *,
    abilities: Abilities,
    secret: bytes = b"",
) -> Plan:
    """The plan for a request.

    Raises:
        RefusalError: the request is malformed or asks for what the tier does not give (400).
    """
    thinking = config.thinking
    wishes = read_wishes(api, body, headers, thinking)
    if api is Api.COMPLETIONS and not thinking.show:
        # Its text holds thinking and answer together, so nothing could be hidden.
        wishes = Wishes(effort=wishes.effort, max_tokens=wishes.max_tokens, thinking_required=False)
    default = _COMPLETIONS_DEFAULT_TOKENS if api is Api.COMPLETIONS else None
    budget = decide(config, wishes, default_max_tokens=default)
    stripped = strip_history(api, body, thinking.keep, start=thinking.start, end=thinking.end)
    tenant = identify(config.tenants, headers, body.get("cache_salt"), secret=secret)
    new = with_budget(api, stripped.body, budget, thinking)
    if config.tenants.source is not TenantSource.NONE:
        new["cache_salt"] = tenant.salt
    _refuse_background(api, body)
    choices = _choices(body, config.max_choices)
    prompt = measure(api, new)
    closing = abilities.closes and _can_close(api, body, choices) and budget.thinks
    by_engine = abilities.engine_holds_budgets and (api.has_budget_field or abilities.carries_budget)
    enforced = not thinking.supported or closing or (by_engine and thinking.budget_enforceable)
    carried = None if api.has_budget_field or not (thinking.supported and enforced) else budget.thinking_tokens
    return Plan(
        body=new,
        budget=budget,
        tenant=tenant,
        prompt=prompt,
        prefix=shared_prefix(api, new),
        outputs=choices * prompt.prompts,
        streamed=body.get("stream") is True,
        priority=_priority(body, headers),
        hides=thinking.supported and not thinking.show,
        closing=closing,
        enforced=enforced,
        carried_budget=carried,
        stripped=stripped,
        headers=_headers(config, budget, enforced=enforced),
    )


def _can_close(api: Api, body: Mapping[str, Any], choices: int) -> bool:
    """A continuation is a raw completion: one choice, no tool calls to parse, no token data to merge."""
    unsupported = ("tools", "logprobs", "return_token_ids", "echo", "use_beam_search", "continue_final_message")
    return api is Api.CHAT and choices == 1 and not any(body.get(name) for name in unsupported)


def _refuse_background(api: Api, body: Mapping[str, Any]) -> None:
    if api is Api.RESPONSES and body.get("background"):
        message = "background is not served here: such a request would outlive its admission."
        raise RefusalError(400, "background_unsupported", message, param="background")


def _choices(body: Mapping[str, Any], most: int) -> int:
    choices = body.get("n")
    if choices is None:
        return 1
    if not isinstance(choices, int) or isinstance(choices, bool) or choices < 1:
        raise RefusalError(400, "malformed_field", "n must be an integer of at least 1.", param="n")
    if choices > most:
        raise RefusalError(400, "too_many_choices", f"n is {choices}; this tier allows {most}.", param="n")
    return choices


def _priority(body: Mapping[str, Any], headers: Mapping[str, str]) -> int:
    """Lower is earlier, as in vLLM, whose header goes before its field."""
    value = headers.get("x-vllm-priority", body.get("priority", 0))
    try:
        return int(value)
    except (TypeError, ValueError):
        return 0


def _headers(config: RuntimeConfig, budget: Budget, *, enforced: bool) -> dict[str, str]:
    headers = {
        contract.TIER_HEADER: config.tier,
        contract.APPLIED_EFFORT_HEADER: budget.effort.name,
        contract.THINKING_BUDGET_HEADER: str(budget.thinking_tokens),
        contract.MAX_TOKENS_HEADER: str(budget.max_tokens),
        contract.ENFORCED_HEADER: "thinking" if enforced else "total",
    }
    if budget.clamped:
        headers[contract.CLAMPED_HEADER] = ", ".join(budget.clamped)
    return headers
