import pytest

from reasoningpool_runtime.apis import Api
from reasoningpool_runtime.budgets import Budget
from reasoningpool_runtime.contract import Effort, Thinking
from reasoningpool_runtime.rewrite import with_budget

THINKING = Thinking(on={"enable_thinking": True}, off={"enable_thinking": False})
EFFORT = Effort(name="high", thinking_tokens=100, answer_tokens=50)
BUDGET = Budget(effort=EFFORT, thinking_tokens=100, max_tokens=150)
SILENT = Budget(effort=EFFORT, thinking_tokens=0, max_tokens=50)


def test_chat_gets_all_three_fields() -> None:
    body = {"model": "m", "max_tokens": 9, "reasoning_effort": "high", "chat_template_kwargs": {"x": 1}}
    assert with_budget(Api.CHAT, body, BUDGET, THINKING) == {
        "model": "m",
        "max_completion_tokens": 150,
        "thinking_token_budget": 100,
        "chat_template_kwargs": {"x": 1, "enable_thinking": True},
    }
    assert body["max_tokens"] == 9


def test_an_effort_without_thinking_uses_the_models_switch() -> None:
    new = with_budget(Api.CHAT, {}, SILENT, THINKING)
    assert new["chat_template_kwargs"] == {"enable_thinking": False}
    assert new["thinking_token_budget"] == 0  # for a model that opens a thought all the same


def test_raw_prompts_have_no_switch() -> None:
    assert "chat_template_kwargs" not in with_budget(Api.COMPLETIONS, {}, SILENT, THINKING)


@pytest.mark.parametrize("api", [Api.RESPONSES, Api.MESSAGES])
def test_apis_without_the_field_do_not_get_it(api: Api) -> None:
    new = with_budget(api, {"thinking": {"type": "enabled", "budget_tokens": 4000}}, BUDGET, THINKING)
    assert "thinking_token_budget" not in new
    assert "thinking" not in new


def test_a_parser_without_tags_gets_no_budget() -> None:
    assert "thinking_token_budget" not in with_budget(Api.CHAT, {}, BUDGET, Thinking(budget_enforceable=False))


def test_the_templates_own_effort_goes_where_the_api_has_it() -> None:
    effort = Effort(name="deep", thinking_tokens=100, answer_tokens=50, template_effort="high")
    budget = Budget(effort=effort, thinking_tokens=100, max_tokens=150)
    assert with_budget(Api.CHAT, {}, budget, THINKING)["reasoning_effort"] == "high"
    responses = with_budget(Api.RESPONSES, {"reasoning": {"effort": "low", "summary": "auto"}}, budget, THINKING)
    assert responses["reasoning"] == {"effort": "high", "summary": "auto"}
    assert with_budget(Api.MESSAGES, {}, budget, THINKING)["output_config"] == {"effort": "high"}
    assert "reasoning" not in with_budget(Api.RESPONSES, {"reasoning": {"effort": "deep"}}, BUDGET, THINKING)
