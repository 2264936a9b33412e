import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoningpool_runtime import sse
from reasoningpool_runtime.apis import Api
from reasoningpool_runtime.hide import StreamHider, without_thinking


def chat(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    return sse.event({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish, **more}]})


CHAT = [
    chat({"role": "assistant", "content": ""}),
    chat({"reasoning": "secret one"}, logprobs={"content": [{"token": "secret"}]}),
    chat({"reasoning": "secret two", "content": "Pa"}, token_ids=[1, 2]),
    chat({"content": "ris"}, logprobs={"content": [{"token": "ris"}]}),
    chat({"content": "."}, "stop"),
    sse.event({"id": "c", "choices": [], "usage": {"completion_tokens": 9}}),
    sse.DONE,
]


def hidden(api: Api, chunks: list[bytes]) -> bytes:
    hider = StreamHider(api)
    return b"".join(hider.feed(chunk) for chunk in chunks) + hider.close()


def test_a_chat_stream_loses_its_thinking_only() -> None:
    text = hidden(Api.CHAT, CHAT)
    assert b"secret" not in text
    assert b'token_ids":[' not in text
    events = [sse.payload(event) for event in sse.EventSplitter().feed(text)]
    content = "".join(c["delta"].get("content") or "" for e in events if e for c in e["choices"])
    assert content == "Paris."
    assert text.endswith(sse.DONE)
    assert b'"completion_tokens":9' in text
    assert b'"token":"ris"' in text


@given(cuts=st.lists(st.integers(0, len(b"".join(CHAT))), max_size=12))
def test_it_does_not_matter_how_the_stream_is_cut(cuts: list[int]) -> None:
    whole = b"".join(CHAT)
    edges = [0, *sorted(cuts), len(whole)]
    pieces = [whole[start:end] for start, end in pairwise(edges)]
    assert hidden(Api.CHAT, pieces) == hidden(Api.CHAT, CHAT)


def test_messages_are_numbered_anew() -> None:
    def block(index: int, kind: str) -> list[bytes]:
        delta = {"type": f"{kind}_delta", kind: "secret" if kind == "thinking" else "Paris"}
        return [
            sse.event({"type": "content_block_start", "index": index, "content_block": {"type": kind}}, "x"),
            sse.event({"type": "content_block_delta", "index": index, "delta": delta}, "x"),
            sse.event({"type": "content_block_stop", "index": index}, "x"),
        ]

    text = hidden(Api.MESSAGES, [*block(0, "thinking"), *block(1, "text"), *block(2, "thinking"), *block(3, "text")])
    events = [sse.payload(event) for event in sse.EventSplitter().feed(text)]
    assert [event["index"] for event in events] == [0, 0, 0, 1, 1, 1]
    assert b"secret" not in text


def test_responses_are_numbered_anew() -> None:
    reasoning, message = {"type": "reasoning", "id": "r"}, {"type": "message", "id": "m"}
    events = [
        {"type": "response.created", "sequence_number": 0, "response": {"output": []}},
        {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": reasoning},
        {"type": "response.reasoning_text.delta", "sequence_number": 2, "output_index": 0, "delta": "secret"},
        {"type": "response.output_item.done", "sequence_number": 3, "output_index": 0, "item": reasoning},
        {"type": "response.output_item.added", "sequence_number": 4, "output_index": 1, "item": message},
        {"type": "response.output_text.delta", "sequence_number": 5, "output_index": 1, "delta": "Paris"},
        {"type": "response.completed", "sequence_number": 6, "response": {"output": [reasoning, message]}},
    ]
    text = hidden(Api.RESPONSES, [sse.event(event, event["type"]) for event in events])
    seen = [sse.payload(event) for event in sse.EventSplitter().feed(text)]
    assert [event["sequence_number"] for event in seen] == [0, 1, 2, 3]
    assert [event["output_index"] for event in seen[1:3]] == [0, 0]
    assert seen[-1]["response"]["output"] == [message]
    assert b"secret" not in text


@pytest.mark.parametrize(
    ("api", "body", "left"),
    [
        (
            Api.CHAT,
            {"choices": [{"message": {"content": "a", "reasoning": "s"}, "logprobs": {}, "token_ids": [1]}]},
            {"choices": [{"message": {"content": "a"}, "logprobs": None, "token_ids": None}]},
        ),
        (Api.MESSAGES, {"content": [{"type": "thinking"}, {"type": "text"}]}, {"content": [{"type": "text"}]}),
        (Api.RESPONSES, {"output": [{"type": "reasoning"}, {"type": "message"}]}, {"output": [{"type": "message"}]}),
    ],
)
def test_whole_responses_lose_their_thinking_only(api: Api, body: Any, left: Any) -> None:
    assert json.loads(without_thinking(api, json.dumps(body).encode())) == left


@pytest.mark.parametrize("body", [b"", b"null", b"oops", b"[]"])
def test_what_is_no_response_stays(body: bytes) -> None:
    assert without_thinking(Api.CHAT, body) == body
