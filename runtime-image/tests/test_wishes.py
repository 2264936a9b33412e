import pytest

from reasoningpool_runtime.apis import Api
from reasoningpool_runtime.contract import Thinking
from reasoningpool_runtime.errors import RefusalError
from reasoningpool_runtime.wishes import Wishes, read_wishes, right_name

THINKING = Thinking(on={"enable_thinking": True}, off={"enable_thinking": False})


def read(api: Api = Api.CHAT, headers: dict[str, str] | None = None, **body: object) -> Wishes:
    return read_wishes(api, body, headers or {}, THINKING)


@pytest.mark.parametrize(
    "body", [{"reasoning_effort": "high"}, {"reasoning": {"effort": "high"}}, {"output_config": {"effort": "high"}}]
)
@pytest.mark.parametrize("api", Api)
def test_every_way_of_naming_an_effort_is_understood_on_every_api(api: Api, body: dict[str, object]) -> None:
    assert read(api, **body).effort == "high"


def test_the_body_goes_before_the_header() -> None:
    assert read(headers={"x-reasoning-effort": "low"}).effort == "low"
    assert read(headers={"x-reasoning-effort": "low"}, reasoning_effort="high").effort == "high"


def test_anthropic_thinking_is_understood() -> None:
    assert read(Api.MESSAGES, thinking={"type": "enabled", "budget_tokens": 2048}).thinking_tokens == 2048
    assert read(Api.MESSAGES, thinking={"type": "disabled"}).thinking_required is False
    assert read(Api.MESSAGES, thinking={"type": "adaptive"}) == Wishes()


def test_the_models_own_switch_is_a_wish() -> None:
    assert read(chat_template_kwargs={"enable_thinking": False}).thinking_required is False
    assert read(chat_template_kwargs={"enable_thinking": True}).thinking_required is True
    assert read(chat_template_kwargs={"other": 1}).thinking_required is None


def test_each_api_has_its_own_total() -> None:
    assert read(Api.CHAT, max_tokens=5).max_tokens == 5
    assert read(Api.CHAT, max_tokens=5, max_completion_tokens=7).max_tokens == 7
    assert read(Api.RESPONSES, max_output_tokens=5).max_tokens == 5


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"reasoning_effort": 3}, "reasoning_effort"),
        ({"reasoning": "high"}, "reasoning"),
        ({"thinking": {"type": "enabled", "budget_tokens": "many"}}, "thinking.budget_tokens"),
        ({"thinking_token_budget": -2}, "thinking_token_budget"),
        ({"thinking_token_budget": True}, "thinking_token_budget"),
        ({"thinking_token_budget": 1.5}, "thinking_token_budget"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "10"}, "max_tokens"),
        ({"thinking_required": "yes"}, "thinking_required"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
    ],
)
def test_malformed_wishes_are_refused_by_name(body: dict[str, object], field: str) -> None:
    with pytest.raises(RefusalError) as caught:
        read(**body)
    assert (caught.value.status, caught.value.param) == (400, field)


@pytest.mark.parametrize(
    ("key", "right"),
    [
        ("thinking_budget", "thinking_token_budget"),
        ("thinking_budget_tokens", "thinking_token_budget"),
        ("max_thinking_tokens", "thinking_token_budget"),
        ("thinkingBudget", "thinking_token_budget"),
        ("thinking_token_buget", "thinking_token_budget"),
        ("thinking_tokens", "thinking_token_budget"),
        ("reasoning_tokens", "thinking_token_budget"),
        ("max_reasoning_tokens", "thinking_token_budget"),
        ("budget_tokens", "thinking_token_budget"),
        ("reasoning_budget", "thinking_token_budget"),
        ("reasoningEffort", "reasoning_effort"),
        ("effort", "reasoning_effort"),
        ("reasoning_efort", "reasoning_effort"),
        ("thinking_requred", "thinking_required"),
        ("enable_thinking", "chat_template_kwargs.enable_thinking"),
        ("maxTokens", "max_completion_tokens"),
        ("max_output_tokens", "max_completion_tokens"),
        ("max_new_tokens", "max_completion_tokens"),
        ("extra_body", "the top level"),
    ],
)
def test_misspelt_budget_fields_are_told_their_name(key: str, right: str) -> None:
    assert right_name(Api.CHAT, key) == right
    with pytest.raises(RefusalError, match=r"max_|thinking|effort|top level") as caught:
        read(**{key: 100})
    assert caught.value.param == key


@pytest.mark.parametrize(
    "key",
    [
        *("model", "messages", "max_tokens", "max_completion_tokens", "min_tokens", "reasoning_effort", "reasoning"),
        *("thinking_token_budget", "include_reasoning", "truncate_prompt_tokens", "thinking", "thinking_required"),
        *("max_tool_calls", "chat_template_kwargs", "metadata", "user", "top_logprobs", "return_token_ids"),
    ],
)
def test_real_fields_are_not_taken_for_misspelt(key: str) -> None:
    assert right_name(Api.CHAT, key) is None


def test_the_right_name_depends_on_the_api() -> None:
    assert right_name(Api.RESPONSES, "max_tokens") == "max_output_tokens"
    assert right_name(Api.COMPLETIONS, "max_completion_tokens") == "max_tokens"
    assert right_name(Api.MESSAGES, "max_tokens") is None
