"""Thoughts that the runtime ends itself, in front of an application that behaves as vLLM does."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from fake_vllm import Client

from reasoningpool_runtime import contract, sse
from reasoningpool_runtime.asgi import Receive, Scope, Send, answer
from reasoningpool_runtime.contract import Thinking

if TYPE_CHECKING:
    from stack import Stack

THOUGHT_TOKENS = 500


@dataclass
class Rambling:
    """Thinks for `thought` tokens before it answers; continues a completion with one word."""

    thought: int = THOUGHT_TOKENS
    generated: int = 0
    completions: list[dict[str, Any]] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = json.loads((await receive())["body"])
        match scope["path"]:
            case "/tokenize":
                await answer(send, 200, b'{"count": 3, "tokens": [7, 8, 9]}')
            case "/v1/completions":
                self.completions.append(body)
                await self._stream(send, [{"choices": [{"text": "Paris", "finish_reason": "stop"}]}])
            case _:
                chunks = [_delta({"reasoning": "hm "}, 1) for _ in range(self.thought)]
                chunks[0]["prompt_token_ids"] = [5, 6]
                end = _delta({"content": "Rome"}, 2)
                end["choices"][0]["finish_reason"] = "stop"
                await self._stream(send, [*chunks, end], receive)

    async def _stream(self, send: Send, chunks: list[dict[str, Any]], receive: Receive | None = None) -> None:
        gone = asyncio.create_task(receive()) if receive else None
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        usage = {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": len(chunks)}}
        for chunk in [*chunks, usage]:
            if gone is not None and gone.done():
                return
            self.generated += 1
            await send({"type": "http.response.body", "body": sse.event({"id": "c", **chunk}), "more_body": True})
            await asyncio.sleep(0)
        if gone is not None:
            gone.cancel()
        await send({"type": "http.response.body", "body": sse.DONE})


def _delta(delta: dict[str, Any], token: int) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None, "token_ids": [token]}]}


@pytest.fixture
def rambling(stack: Stack) -> Rambling:
    application = Rambling()
    stack.runtime.app = application
    stack.configure(thinking=Thinking(budget_enforceable=False))
    return application


async def test_a_thought_is_ended_at_its_budget_and_answered(stack: Stack, rambling: Rambling) -> None:
    reply = await stack.chat(temperature=0.5, seed=3, cache_salt="t", response_format={"type": "json_object"})
    whole = reply.json()
    assert whole["choices"][0]["message"]["content"] == "Paris"
    assert whole["choices"][0]["message"]["reasoning"] == "hm " * 128
    assert whole["choices"][0]["finish_reason"] == "stop"
    assert whole["usage"]["completion_tokens"] == 128 + 1
    assert reply.headers[contract.CLOSED_HEADER] == "true"
    assert reply.headers[contract.ENFORCED_HEADER] == "thinking"
    (continued,) = rambling.completions
    assert continued["prompt"] == [5, 6] + [1] * 128 + [7, 8, 9]
    assert continued["max_tokens"] == 192 - 128 - 3
    assert {"temperature", "seed", "cache_salt", "response_format"} < continued.keys()
    assert rambling.generated < THOUGHT_TOKENS  # the first stream was dropped


async def test_a_stream_goes_on_where_it_was_cut(stack: Stack, rambling: Rambling) -> None:
    reply = await stack.chat(stream=True, stream_options={"include_usage": True})
    events = [sse.payload(event) for event in sse.EventSplitter().feed(reply.body)]
    deltas = [choice["delta"] for event in events if event for choice in event["choices"]]
    assert "".join(delta.get("reasoning", "") for delta in deltas) == "hm " * 128
    assert deltas[-1] == {"content": "Paris"}
    assert b"token_ids" not in reply.body
    assert [event for event in events if event and event.get("usage")][-1]["usage"]["total_tokens"] == 2 + 129
    assert reply.body.endswith(sse.DONE)


async def test_usage_is_told_only_to_those_who_ask(stack: Stack, rambling: Rambling) -> None:
    assert b"usage" not in (await stack.chat(stream=True)).body


@pytest.mark.parametrize("stream", [False, True])
async def test_a_thought_within_its_budget_is_left_alone(stack: Stack, rambling: Rambling, *, stream: bool) -> None:
    rambling.thought = 20
    reply = await stack.chat(stream=stream)
    assert b"Rome" in reply.body
    assert not rambling.completions
    assert contract.CLOSED_HEADER not in reply.headers


async def test_what_a_continuation_cannot_serve_is_capped_by_the_total_only(stack: Stack, rambling: Rambling) -> None:
    reply = await stack.chat(stream=True, tools=[{"type": "function"}])
    assert reply.headers[contract.ENFORCED_HEADER] == "total"
    assert not rambling.completions


async def test_a_client_that_hangs_up_ends_the_first_stream(stack: Stack, rambling: Rambling) -> None:
    client = Client(stack.middleware)

    async def hang_up() -> None:
        client.hang_up()
        await asyncio.sleep(0)

    client.on_chunk = hang_up
    await asyncio.wait_for(client.request("/v1/chat/completions", {"messages": [], "stream": True}), 10)
    assert rambling.generated < 128
    assert stack.runtime.lifecycle.in_flight == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failed_continuation_is_an_error_and_no_crash(
    stack: Stack, rambling: Rambling, monkeypatch: pytest.MonkeyPatch, *, stream: bool
) -> None:
    monkeypatch.setattr(Rambling, "__call__", _without_completions(Rambling.__call__))
    reply = await stack.chat(stream=stream)
    if stream:
        assert b"engine_failed" in reply.body
        assert reply.body.endswith(sse.DONE)
    else:
        assert (reply.status, reply.json()["error"]["code"]) == (503, "engine_failed")
    assert stack.runtime.lifecycle.in_flight == 0


def _without_completions(original: Any) -> Any:
    async def call(self: Rambling, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/v1/completions":
            await answer(send, 500, b"{}")
        else:
            await original(self, scope, receive, send)

    return call


async def test_an_error_before_the_first_token_is_passed_on(stack: Stack) -> None:
    async def refusing(_scope: Scope, _receive: Receive, send: Send) -> None:
        await answer(send, 400, b'{"error": {"message": "no such model"}}')

    stack.runtime.app = refusing
    stack.configure(thinking=Thinking(budget_enforceable=False))
    reply = await stack.chat()
    assert reply.status == 400
    assert b"no such model" in reply.body
