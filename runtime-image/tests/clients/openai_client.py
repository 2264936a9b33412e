"""The official OpenAI client, unmodified; run with vLLM's Python. Argument: the server's address."""

from __future__ import annotations

import json
import sys

import openai

client = openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0)
MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
TOOL = {"name": "weather", "description": "Weather of a city", "parameters": SCHEMA}


def chats() -> None:
    answer = client.chat.completions.create(model="tiny", messages=MESSAGES, reasoning_effort="high")
    assert answer.choices[0].message.content
    assert answer.usage
    assert answer.usage.completion_tokens_details
    assert 0 < answer.usage.completion_tokens_details.reasoning_tokens <= 60
    raw = client.chat.completions.with_raw_response.create(model="tiny", messages=MESSAGES, max_completion_tokens=9999)
    assert raw.headers["x-reasoningpool-clamped"] == "max_tokens"
    chosen = client.chat.completions.create(
        model="tiny", messages=MESSAGES, n=2, logprobs=True, top_logprobs=2, extra_body={"thinking_token_budget": 8}
    )
    assert len(chosen.choices) == 2
    assert chosen.choices[0].logprobs
    assert chosen.choices[0].logprobs.content


def streams() -> None:
    parts, usage = [], None
    with client.chat.completions.create(
        model="tiny", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    ) as stream:
        for chunk in stream:
            usage = chunk.usage or usage
            parts += [choice.delta.content for choice in chunk.choices if choice.delta.content]
    assert parts
    assert usage
    assert usage.completion_tokens <= 40
    text = [
        choice.text
        for chunk in client.completions.create(model="tiny", prompt="One", max_tokens=8, stream=True)
        for choice in chunk.choices
    ]
    assert "".join(text)


def structures() -> None:
    answer = client.chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        reasoning_effort="none",
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}},
    )
    assert answer.choices[0].message.content.lstrip().startswith("{")
    called = client.chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        reasoning_effort="none",
        tools=[{"type": "function", "function": TOOL}],
        tool_choice={"type": "function", "function": {"name": "weather"}},
    )
    # A model of random weights may not get to the end of its arguments.
    (choice,) = called.choices
    calls = choice.message.tool_calls or []
    assert [call.function.name for call in calls] == ["weather"] or choice.finish_reason == "length"


def responses() -> None:
    answer = client.responses.create(model="tiny", input="What is the capital of France?", reasoning={"effort": "high"})
    assert answer.output_text
    assert 0 < answer.usage.output_tokens_details.reasoning_tokens <= 60
    kinds = []
    with client.responses.stream(model="tiny", input="Hello") as stream:
        kinds = [event.type for event in stream]
        assert stream.get_final_response().output_text
    assert kinds[-1] in {"response.completed", "response.incomplete"}


def errors() -> None:
    for wrong in ({"thinking_budget": 5}, {"reasoning_effort": "hihg"}):
        try:
            client.chat.completions.create(model="tiny", messages=MESSAGES, extra_body=wrong)
        except openai.BadRequestError as error:
            assert json.dumps(error.body)
            assert error.param in wrong
        else:
            raise AssertionError(f"{wrong} was accepted")


for check in (chats, streams, structures, responses, errors):
    check()
