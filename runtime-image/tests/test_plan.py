import json
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from stack import CONFIG

from reasoningpool_runtime.apis import Api
from reasoningpool_runtime.errors import RefusalError
from reasoningpool_runtime.plan import Abilities, Plan, make_plan

ABLE = Abilities()
FIELDS = (
    *("messages", "prompt", "input", "instructions", "system", "tools", "model", "n", "stream", "background"),
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "thinking_token_budget", "reasoning_effort"),
    *("reasoning", "thinking", "output_config", "thinking_required", "chat_template_kwargs", "cache_salt", "priority"),
)
WORDS = st.sampled_from(
    ["user", "assistant", "system", "tool", "text", "thinking", "reasoning", "tool_result", "enabled", "low", "<think>"]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | WORDS
KEYS = st.sampled_from(
    ["role", "content", "type", "text", "effort", "budget_tokens", "reasoning", "thinking", "tool_calls", "summary"]
)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4))


def plan(api: Api, body: dict[str, Any], abilities: Abilities = ABLE) -> Plan:
    return make_plan(CONFIG, api, body, {}, abilities=abilities)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    api=st.sampled_from(Api),
    body=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6),
    abilities=st.builds(Abilities, closes=st.booleans(), carries_budget=st.booleans()),
)
@example(
    api=Api.CHAT,
    body={"messages": [{"role": "assistant", "content": [{"text": None}], "tool_calls": 3}, 1]},
    abilities=ABLE,
)
def test_any_body_is_planned_or_refused(api: Api, body: dict[str, Any], abilities: Abilities) -> None:
    try:
        made = plan(api, body, abilities)
    except RefusalError as refusal:
        assert refusal.status == 400
        return
    json.dumps(made.body)
    assert made.body[api.max_tokens_field] >= 0
    assert made.prompt.text_bytes >= 0
    assert made.outputs >= 1


def test_a_budget_travels_beside_the_body_where_the_api_has_no_field() -> None:
    assert plan(Api.RESPONSES, {}).carried_budget == 128
    assert plan(Api.CHAT, {}).carried_budget is None
    without = plan(Api.MESSAGES, {"max_tokens": 500}, Abilities(carries_budget=False))
    assert (without.carried_budget, without.enforced) == (None, False)


@pytest.mark.parametrize("extra", [{"n": 2}, {"tools": [{}]}, {"logprobs": True}, {"return_token_ids": True}])
def test_only_simple_chats_are_closed_by_the_runtime(extra: dict[str, Any]) -> None:
    able = Abilities(engine_holds_budgets=False, closes=True)
    assert plan(Api.CHAT, {}, able).closing
    assert not plan(Api.CHAT, extra, able).closing
    assert not plan(Api.CHAT, {"reasoning_effort": "none"}, able).closing
    assert not plan(Api.RESPONSES, {}, able).enforced


def test_requests_with_the_same_system_prompt_share_a_prefix() -> None:
    system = {"role": "system", "content": "Be kind. " * 100}
    one, other = (plan(Api.CHAT, {"messages": [system, {"role": "user", "content": text}]}) for text in "ab")
    assert one.prefix == other.prefix
    assert 64 <= one.prefix[1] <= 900 // 4
    salted = plan(Api.CHAT, {"messages": [system], "cache_salt": "x"})
    assert salted.prefix[0] != one.prefix[0]
    assert plan(Api.CHAT, {"messages": [{"role": "system", "content": "Short."}]}).prefix == (None, 0)


def test_every_prompt_of_a_batch_counts() -> None:
    assert plan(Api.COMPLETIONS, {"prompt": ["a", "b"], "n": 2}).outputs == 4
    assert plan(Api.COMPLETIONS, {"prompt": [1, 2, 3]}).prompt.tokens == 3
    assert plan(Api.COMPLETIONS, {"prompt": [[1, 2], [3]]}).prompt.tokens == 3
