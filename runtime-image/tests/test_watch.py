import json

import pytest

from reasoningpool_runtime.apis import Api
from reasoningpool_runtime.watch import ResponseWatch


def seen(api: Api, *chunks: str) -> ResponseWatch:
    watch = ResponseWatch(api)
    for now, chunk in enumerate(chunks):
        watch.chunk(chunk.encode(), float(now))
    return watch


def chat(**delta: str) -> str:
    return json.dumps({"choices": [{"delta": delta}]}, separators=(",", ":"))


@pytest.mark.parametrize(
    ("api", "thinking", "answer"),
    [
        (Api.CHAT, chat(reasoning='say "content":"x"'), chat(content='"quoted"')),
        (Api.CHAT, chat(content=""), chat(content=" a")),
        (Api.CHAT, chat(content="\n\n"), chat(content="a")),
        (Api.CHAT, chat(reasoning="x"), '{"delta":{"tool_calls":[{"index":0}]}}'),
        (Api.RESPONSES, '{"type":"response.reasoning_text.delta"}', '{"type":"response.output_text.delta"}'),
        (Api.MESSAGES, '{"delta":{"type":"thinking_delta","thinking":"x"}}', '{"delta":{"type":"text_delta"}}'),
        (Api.COMPLETIONS, '{"choices":[{"text":""}]}', '{"choices":[{"text":"x"}]}'),
    ],
)
def test_the_first_token_of_the_answer_is_seen(api: Api, thinking: str, answer: str) -> None:
    assert seen(api, thinking).first_answer_at is None
    assert seen(api, thinking, thinking, answer, answer).first_answer_at == 2.0


@pytest.mark.parametrize(
    ("api", "chunk", "cut"),
    [
        (Api.CHAT, '{"choices":[{"finish_reason":"length"},{"finish_reason":"length"}]}', 2),
        (Api.CHAT, '{"choices":[{"finish_reason":"stop"}]}', 0),
        (Api.MESSAGES, '{"delta":{"stop_reason":"max_tokens"}}', 1),
        (Api.RESPONSES, '{"incomplete_details":{"reason":"max_output_tokens"}}', 1),
    ],
)
def test_outputs_cut_by_their_limit_are_counted(api: Api, chunk: str, cut: int) -> None:
    assert seen(api, chunk).cut_outputs() == cut


def test_usage_is_read_where_vllm_leaves_none() -> None:
    text = '{"usage":{"input_tokens":5,"output_tokens":9,"output_tokens_details":{"reasoning_tokens":4}}}'
    usage = seen(Api.RESPONSES, text).usage()
    assert usage is not None
    assert (usage.prompt, usage.output, usage.thinking) == (5, 9, 4)
    assert seen(Api.RESPONSES, "{}").usage() is None
