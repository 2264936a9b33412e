import pytest

from reasoningpool_runtime.apis import Api
from reasoningpool_runtime.contract import KeepThinking
from reasoningpool_runtime.history import strip_history, strip_text

USER = {"role": "user", "content": "And now?"}
ANSWER = {"role": "assistant", "content": "Paris."}


def strip(*messages: object, api: Api = Api.CHAT, keep: KeepThinking = KeepThinking.NEVER) -> list[object]:
    field = "input" if api is Api.RESPONSES else "messages"
    return strip_history(api, {field: list(messages)}, keep).body[field]


@pytest.mark.parametrize(
    "text",
    [
        "<think>hm</think>Paris.",
        "<think>\nhm\n</think>\n\nParis.",
        "\n<think>hm</think>\n Paris.",
        "hm, the capital\n</think>\n\nParis.",
        "[THINK]hm[/THINK]Paris.",
        "<seed:think>hm</seed:think>Paris.",
        "<|channel|>analysis<|message|>hm<|end|>Paris.",
    ],
)
def test_inline_thinking_of_each_family_is_removed(text: str) -> None:
    assert strip_text(text) == "Paris."


@pytest.mark.parametrize(
    "text",
    ["Paris.", "Write </think> to end it.", "The tags are <think> and </think>.", "", "a < b", "I think </think> so."],
)
def test_text_that_only_mentions_thinking_stays(text: str) -> None:
    assert strip_text(text) == text


def test_a_thought_that_was_cut_is_removed_whole() -> None:
    assert not strip_text("<think>hm, and then")


def test_a_long_text_is_looked_at_in_linear_time() -> None:
    text = "word " * 400_000 + "</think> x"
    assert strip_text(text) == text


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_thinking_fields_of_earlier_messages_are_removed(field: str) -> None:
    assert strip(USER, {**ANSWER, field: "hm"}, USER) == [USER, ANSWER, USER]


def test_the_same_history_comes_out_however_the_client_kept_it() -> None:
    """Otherwise the next turn would miss the prefix cache."""
    kept = [
        {**ANSWER, "reasoning": "hm"},
        {**ANSWER, "reasoning_content": "hm"},
        {"role": "assistant", "content": "<think>hm</think>\n\nParis."},
        ANSWER,
    ]
    assert all(strip(USER, one, USER) == [USER, ANSWER, USER] for one in kept)


def test_anthropic_and_responses_items_are_removed() -> None:
    block = {"type": "text", "text": "Paris."}
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    turn = {"role": "assistant", "content": [thought, block]}
    assert strip(USER, turn, USER, api=Api.MESSAGES)[1] == {"role": "assistant", "content": [block]}
    item = {"type": "reasoning", "id": "r", "content": [{"type": "reasoning_text", "text": "hm"}]}
    assert strip(USER, item, ANSWER, USER, api=Api.RESPONSES) == [USER, ANSWER, USER]


def test_a_message_that_is_being_continued_stays() -> None:
    prefill = {"role": "assistant", "content": "<think>hm"}
    assert strip(USER, prefill) == [USER, prefill]


def test_thinking_between_tool_calls_stays_where_the_tier_keeps_it() -> None:
    old = {**ANSWER, "reasoning": "old"}
    call = {"role": "assistant", "content": None, "reasoning": "I need the weather", "tool_calls": [{"id": "1"}]}
    result = {"role": "tool", "content": "rain", "tool_call_id": "1"}
    messages = [USER, old, USER, call, result]
    assert strip(*messages, keep=KeepThinking.TOOL_CALLS) == [USER, ANSWER, USER, call, result]
    assert "reasoning" not in strip(*messages)[3]
    assert strip(*messages, keep=KeepThinking.ALWAYS) == messages


def test_anthropic_tool_results_do_not_begin_a_turn() -> None:
    call = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "tool_use", "id": "1"}]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1"}]}
    kept = strip(USER, call, result, api=Api.MESSAGES, keep=KeepThinking.TOOL_CALLS)
    assert kept == [USER, call, result]


def test_what_was_removed_is_counted_and_the_given_body_is_untouched() -> None:
    messages = [USER, {**ANSWER, "reasoning": "hmm"}, USER]
    stripped = strip_history(Api.CHAT, {"messages": messages}, KeepThinking.NEVER)
    assert (stripped.messages, stripped.characters) == (1, 3)
    assert messages[1]["reasoning"] == "hmm"


@pytest.mark.parametrize("items", [None, "text", [], [3], [None, "x"], [{"role": "assistant"}, 1, USER]])
def test_what_is_no_conversation_passes(items: object) -> None:
    assert strip_history(Api.CHAT, {"messages": items}, KeepThinking.NEVER).body == {"messages": items}
