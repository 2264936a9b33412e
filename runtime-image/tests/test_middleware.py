"""The middleware in front of an application that behaves as vLLM does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from reasoningpool_runtime import contract
from reasoningpool_runtime.contract import InternalError, OverBudget, Tenants, TenantSource, Thinking

if TYPE_CHECKING:
    from stack import Stack

Sample = Callable[..., float]
DEADLINE_S = 10.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


async def test_a_request_gets_the_default_budget_and_is_told(stack: Stack) -> None:
    reply = await stack.chat()
    assert stack.vllm.body["thinking_token_budget"] == 128
    assert stack.vllm.body["max_completion_tokens"] == 192
    assert stack.vllm.body["chat_template_kwargs"] == {"enable_thinking": True}
    assert reply.status == 200
    assert reply.headers[contract.APPLIED_EFFORT_HEADER] == "medium"
    assert reply.headers[contract.THINKING_BUDGET_HEADER] == "128"
    assert reply.headers[contract.MAX_TOKENS_HEADER] == "192"
    assert reply.headers[contract.ENFORCED_HEADER] == "thinking"
    assert contract.CLAMPED_HEADER not in reply.headers


async def test_a_clamped_request_is_told_and_counted(stack: Stack, sample: Sample) -> None:
    before = sample("clamps_total", tier="test", field="max_tokens")
    reply = await stack.chat(max_tokens=5000)
    assert reply.headers[contract.CLAMPED_HEADER] == "max_tokens"
    assert sample("clamps_total", tier="test", field="max_tokens") == before + 1


async def test_a_tier_may_refuse_instead(stack: Stack) -> None:
    stack.configure(over_budget=OverBudget.REFUSE)
    reply = await stack.chat(max_tokens=5000)
    assert reply.status == 400
    assert reply.json()["error"]["param"] == "max_tokens"
    assert not stack.vllm.bodies


async def test_errors_have_each_apis_shape(stack: Stack) -> None:
    openai = (await stack.chat(thinking_budget=5)).json()["error"]
    assert openai["code"] == "misspelt_field"
    assert "thinking_token_budget" in openai["message"]
    anthropic = (await stack.chat(path="/v1/messages", thinking_budget=5)).json()
    assert anthropic["type"] == "error"
    assert anthropic["error"]["type"] == "invalid_request_error"


async def test_other_paths_pass_untouched(stack: Stack) -> None:
    await stack.client().request("/v1/embeddings", b"\xff raw")
    assert stack.vllm.bodies == [b"\xff raw"]


async def test_paths_that_dodge_the_budgets_are_closed_unless_allowed(stack: Stack) -> None:
    assert (await stack.chat(path="/invocations")).status == 404
    stack.configure(other_generating_paths=True)
    assert (await stack.chat(path="/invocations")).status == 200


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe{", b"[" * 100_000, b'{"a": 1' * 50, "{'a'}".encode("utf-16")]
)
async def test_what_is_no_json_object_goes_to_vllm_as_it_came(stack: Stack, raw: bytes) -> None:
    await stack.client().request("/v1/chat/completions", raw)
    assert stack.vllm.bodies == [raw]


async def test_a_huge_body_is_refused_before_it_is_read_whole(stack: Stack) -> None:
    stack.configure(max_body_bytes=100_000)
    reply = await stack.client().request("/v1/chat/completions", b" " * 50_000_000)
    assert reply.status == 413
    assert not stack.vllm.bodies


async def test_a_long_prompt_is_counted_by_vllm_and_refused(stack: Stack) -> None:
    reply = await stack.chat(messages=[{"role": "user", "content": "word " * 101}])
    assert reply.status == 400
    assert "The prompt has 101 tokens; tier 'test' allows 100" in reply.json()["error"]["message"]
    assert (await stack.chat(messages=[{"role": "user", "content": "word " * 100}])).status == 200


async def test_background_responses_are_refused(stack: Stack) -> None:
    reply = await stack.chat(path="/v1/responses", background=True)
    assert (reply.status, reply.json()["error"]["param"]) == (400, "background")


async def test_hidden_thinking_is_in_no_response(stack: Stack) -> None:
    stack.vllm.thinking = ["secret ", "thought"]
    stack.configure(thinking=Thinking(show=False))
    for stream in (True, False):
        reply = await stack.chat(stream=stream)
        assert reply.complete
        assert b"secret" not in reply.body
        assert b"Paris" in reply.body
    assert int(reply.headers["content-length"]) == len(reply.body)


async def test_tenants_get_salts_of_their_own(stack: Stack) -> None:
    stack.configure(tenants=Tenants(source=TenantSource.HEADER, required=True))
    salts = []
    for tenant in ("a", "b"):
        await stack.chat(headers={"x-tenant-id": tenant}, cache_salt="mine")
        salts.append(stack.vllm.body["cache_salt"])
    assert len({*salts, "mine"}) == 3
    assert (await stack.chat()).status == 400


async def test_earlier_thinking_is_removed_and_counted(stack: Stack, sample: Sample) -> None:
    before = sample("stripped_history_messages_total", tier="test")
    user = {"role": "user", "content": "Hi"}
    await stack.chat(messages=[user, {"role": "assistant", "content": "Yes", "reasoning": "hm"}, user])
    assert stack.vllm.body["messages"] == [user, {"role": "assistant", "content": "Yes"}, user]
    assert sample("stripped_history_messages_total", tier="test") == before + 1


async def test_metrics_of_a_streamed_request(stack: Stack, sample: Sample) -> None:
    labels = {"tier": "test", "effort": "medium"}
    names = ("time_to_first_answer_token_seconds_count", "thinking_tokens_sum", "answer_tokens_sum")
    before = [sample(name, **labels) for name in names]
    await stack.chat(stream=True)
    assert [sample(name, **labels) - old for name, old in zip(names, before, strict=True)] == [1, 2, 2]
    assert stack.runtime.lifecycle.in_flight == 0


async def test_a_client_that_hangs_up_ends_the_request_behind(stack: Stack, sample: Sample) -> None:
    labels = {"api": "chat", "tier": "test", "effort": "medium", "outcome": "cancelled"}
    before = sample("requests_total", **labels)
    stack.vllm.hold = asyncio.Event()
    client = stack.client()
    task = asyncio.create_task(client.request("/v1/chat/completions", {"messages": [], "stream": True}))
    await until(lambda: bool(client.reply.chunks))
    client.hang_up()
    await asyncio.wait_for(task, DEADLINE_S)
    assert (stack.vllm.aborted, stack.vllm.running) == (1, 0)
    assert sample("requests_total", **labels) == before + 1
    assert not stack.runtime.exchanges


async def test_a_failure_inside_lets_the_request_pass_or_refuses_it(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, sample: Sample
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("reasoningpool_runtime.exchange.make_plan", broken)
    before = sample("middleware_errors_total", where="request")
    assert (await stack.chat(max_tokens=7)).status == 200
    assert stack.vllm.body["max_tokens"] == 7
    stack.configure(on_internal_error=InternalError.REFUSE)
    reply = await stack.chat()
    assert (reply.status, reply.headers["retry-after"]) == (503, "5")
    assert sample("middleware_errors_total", where="request") == before + 2


@pytest.mark.parametrize("stream", [False, True])
async def test_hidden_thinking_stays_hidden_when_hiding_fails(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, *, stream: bool
) -> None:
    def broken(*_: object) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr("reasoningpool_runtime.response.without_thinking", broken)
    monkeypatch.setattr("reasoningpool_runtime.response.StreamHider.feed", broken)
    stack.vllm.thinking = ["secret"]
    stack.configure(thinking=Thinking(show=False))
    reply = await stack.chat(stream=stream)
    assert reply.complete
    assert b"secret" not in reply.body
    assert stream or reply.status == 503


async def test_a_failure_to_watch_does_not_touch_the_response(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, sample: Sample
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("reasoningpool_runtime.response.ResponseWatch.chunk", broken)
    before = sample("middleware_errors_total", where="watch")
    assert b"Paris" in (await stack.chat(stream=True)).body
    assert sample("middleware_errors_total", where="watch") == before + 1


async def test_a_failure_of_vllm_is_vllms(stack: Stack, sample: Sample) -> None:
    before = sample("middleware_errors_total", where="request")
    stack.vllm.failure = RuntimeError("engine died")
    with pytest.raises(RuntimeError, match="engine died"):
        await stack.chat()
    assert sample("middleware_errors_total", where="request") == before
    assert stack.runtime.lifecycle.in_flight == 0


async def test_a_new_configuration_is_taken_over_and_a_broken_one_is_not(stack: Stack, sample: Sample) -> None:
    await stack.chat()
    stack.config_path.write_text(stack.config_path.read_text().replace("128", "100"))
    await until(lambda: stack.runtime.config.efforts[1].thinking_tokens == 100)
    await stack.chat()
    assert stack.vllm.body["thinking_token_budget"] == 100
    stack.config_path.write_text("{")
    await until(lambda: sample("config_valid") == 0)
    await stack.chat()
    assert stack.vllm.body["thinking_token_budget"] == 100


async def test_without_any_configuration_requests_pass(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv(contract.CONFIG_VARIABLE, f"{tmp_path}/absent.json")
    from fake_vllm import Client

    from reasoningpool_runtime.middleware import Middleware

    middleware = Middleware(stack.vllm)
    reply = await Client(middleware).request("/v1/chat/completions", {"max_tokens": 5})
    assert reply.status == 200
    assert stack.vllm.body == {"max_tokens": 5}
    await middleware.runtime.stop()


async def test_readiness_follows_the_engine_and_the_drain(stack: Stack) -> None:
    async def ready() -> int:
        return (await stack.client().request(contract.READY_PATH, b"", method="GET")).status

    assert await ready() == 200
    stack.vllm.healthy = False
    assert await ready() == 503
    stack.vllm.healthy = True
    stack.runtime.lifecycle.begin_drain()
    assert await ready() == 503


async def test_a_drain_lets_requests_finish_and_refuses_new_ones(stack: Stack) -> None:
    from reasoningpool_runtime.lifecycle import request_drain

    stack.vllm.hold = asyncio.Event()
    client = stack.client()
    running = asyncio.create_task(client.request("/v1/chat/completions", {"messages": [], "stream": True}))
    await until(lambda: bool(client.reply.chunks))
    request_drain(stack.state_dir)
    await until(lambda: stack.runtime.lifecycle.draining)
    refused = await stack.chat()
    assert (refused.status, refused.headers["retry-after"]) == (503, "5")
    assert json.loads((await stack.chat(path="/v1/messages")).body)["error"]["type"] == "overloaded_error"
    stack.vllm.hold.set()
    assert (await running).complete


async def test_a_drain_of_an_earlier_life_is_forgotten(stack: Stack) -> None:
    from reasoningpool_runtime.lifecycle import Lifecycle, request_drain

    request_drain(stack.state_dir)
    assert not Lifecycle(stack.state_dir).draining
