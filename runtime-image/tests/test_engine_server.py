"""The middleware in the real vLLM: all APIs and clients, hidden thinking, closure, disconnects, malformed requests."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from served import CONFIG, SWITCH, Reply, Served, chat, serve, until

from engine.environment import EngineEnvironment
from engine.server import LIGHT
from reasoningpool_runtime import contract
from reasoningpool_runtime.contract import Closure, Tenants, TenantSource, Thinking

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent
TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser=hermes")


@pytest.fixture(scope="module")
def served(engine_environment: EngineEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(engine_environment, tmp_path_factory.mktemp("served"), *TOOLS, args=LIGHT) as running:
        yield running


async def idle(served: Served) -> bool:
    return await served.metric("vllm:num_requests_running") + await served.metric("vllm:num_requests_waiting") == 0


@pytest.mark.parametrize("client", ["openai", "anthropic"])
def test_official_clients_work_unmodified(served: Served, engine_environment: EngineEnvironment, client: str) -> None:
    script = HERE / "clients" / f"{client}_client.py"
    done = subprocess.run(
        [str(engine_environment.python), str(script), served.base_url],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]


async def test_hidden_thinking_is_in_no_response_of_any_api(served: Served) -> None:
    await served.configure(thinking=Thinking(**SWITCH, show=False))
    for stream in (False, True):
        more = {"stream": stream, "temperature": 0}
        reply = await served.post(
            "/v1/chat/completions", {**chat(), **more, "logprobs": True, "return_token_ids": True}
        )
        assert b'"reasoning":"' not in reply.raw
        text, usage = chat_text(reply)
        assert text
        # Only tokens of the answer are told.
        answer = int(reply.headers[contract.MAX_TOKENS_HEADER]) - int(reply.headers[contract.THINKING_BUDGET_HEADER])
        ids = [token for event in reply.events for c in event["choices"] for token in c.get("token_ids") or ()]
        assert len(ids) <= answer
        assert usage is None or usage["completion_tokens_details"]["reasoning_tokens"] > 0

        reply = await served.post("/v1/responses", {"model": "tiny", "input": "Hi", **more})
        assert b"reasoning_text" not in reply.raw
        whole = reply.events[-1]["response"] if stream else reply.body
        assert [item["type"] for item in whole["output"]] == ["message"]
        assert whole["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
        if stream:
            assert [event["sequence_number"] for event in reply.events] == list(range(len(reply.events)))

        reply = await served.post("/v1/messages", {**chat(), "max_tokens": 40, **more})
        assert b"thinking" not in reply.raw
        if stream:
            assert {event["index"] for event in reply.events if "index" in event} == {0}
        else:
            assert [part["type"] for part in reply.body["content"]] == ["text"]

        prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n"
        reply = await served.post("/v1/completions", {"model": "tiny", "prompt": prompt, "max_tokens": 20, **more})
        assert reply.headers[contract.THINKING_BUDGET_HEADER] == "0"


def chat_text(reply: Reply) -> tuple[str, Any]:
    if reply.events:
        parts = [choice["delta"] for event in reply.events for choice in event["choices"]]
        return "".join(part.get("content") or "" for part in parts), reply.events[-1].get("usage")
    return reply.body["choices"][0]["message"]["content"], reply.body["usage"]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_runtime_ends_thoughts_that_the_engine_does_not_end(served: Served, stream: bool) -> None:  # noqa: FBT001
    await served.configure(thinking=Thinking(**SWITCH, budget_enforceable=False, closure=Closure.AUTO))
    before = await served.metric("reasoningpool_forced_closures_total")
    options = {"stream_options": {"include_usage": True}} if stream else {}
    reply = await served.post("/v1/chat/completions", {**chat(), "stream": stream, "temperature": 0, **options})
    assert reply.status == 200
    budget, total = (int(reply.headers[name]) for name in (contract.THINKING_BUDGET_HEADER, contract.MAX_TOKENS_HEADER))
    text, usage = chat_text(reply)
    assert text
    assert usage["completion_tokens_details"]["reasoning_tokens"] == budget
    assert budget < usage["completion_tokens"] <= total
    assert reply.headers[contract.ENFORCED_HEADER] == "thinking"
    if stream:
        assert b": reasoningpool ended the thinking" in reply.raw
        assert b"token_ids" not in reply.raw.replace(b'"token_ids":null', b"").replace(b'"prompt_token_ids":null', b"")
        assert len({event["id"] for event in reply.events}) == 1
        assert reply.raw.endswith(b"data: [DONE]\n\n")
    else:
        assert reply.headers[contract.CLOSED_HEADER] == "true"
        assert reply.body["choices"][0]["message"]["reasoning"]
    assert await served.metric("reasoningpool_forced_closures_total") == before + 1
    # The continuation found the prompt and the thought in the prefix cache.
    assert await served.metric("vllm:prefix_cache_hits_total") > 0


async def test_a_continued_answer_keeps_its_schema(served: Served) -> None:
    await served.configure(thinking=Thinking(**SWITCH, budget_enforceable=False))
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    schema["additionalProperties"] = False
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    reply = await served.post("/v1/chat/completions", {**chat(), "response_format": form, "temperature": 0})
    text, _ = chat_text(reply)
    assert reply.headers[contract.CLOSED_HEADER] == "true"
    assert text.lstrip().startswith("{")


async def test_the_engine_is_idle_soon_after_streams_are_dropped(served: Served) -> None:
    await served.configure(efforts=long_efforts())
    for closure in (Closure.NEVER, Closure.ALWAYS):
        await served.configure(efforts=long_efforts(), thinking=Thinking(**SWITCH, closure=closure))

        async def drop(*, stream: bool) -> None:
            async with aiohttp.ClientSession() as session:
                request = session.post(f"{served.base_url}/v1/chat/completions", json={**chat(), "stream": stream})
                if stream:
                    async with request as response:
                        for _ in range(6):
                            await response.content.readline()
                else:
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(request, 1.5)

        await asyncio.gather(*(drop(stream=number % 2 == 0) for number in range(8)))
        await until(lambda: idle(served), 5)

        async def nothing_in_flight() -> bool:
            return await served.metric("reasoningpool_requests_in_flight") == 0

        await until(nothing_in_flight, 5)


def long_efforts() -> tuple[contract.Effort, ...]:
    return (*CONFIG.efforts[:1], contract.Effort(name="medium", thinking_tokens=1500, answer_tokens=100))


async def test_turns_of_a_conversation_hit_the_prefix_cache(served: Served) -> None:
    await served.configure(tenants=Tenants(source=TenantSource.HEADER))
    system = {"role": "system", "content": "Answer in one sentence, and be as kind as you can. " * 8}
    messages: list[dict[str, Any]] = [system]
    prompts: list[int] = []
    hits = await served.metric("vllm:prefix_cache_hits_total")
    for turn in range(5):
        messages.append({"role": "user", "content": f"Question {turn}: what comes next, and after that?"})
        body = {"model": "tiny", "messages": messages, "temperature": 0}
        reply = await served.post("/v1/chat/completions", body, headers={"x-tenant-id": "conversation"})
        message = reply.body["choices"][0]["message"]
        prompts.append(reply.body["usage"]["prompt_tokens"])
        # A client that keeps the thinking, in either way.
        kept = {"content": f"<think>\n{message['reasoning']}\n</think>\n\n{message['content']}"}
        messages.append({"role": "assistant", **(kept if turn % 2 else message)})
    found = await served.metric("vllm:prefix_cache_hits_total") - hits
    # Each turn begins with the prompt of the one before.
    assert found > 0.8 * sum(prompts[:-1])


async def test_tenants_do_not_share_the_prefix_cache(served: Served) -> None:
    await served.configure(tenants=Tenants(source=TenantSource.HEADER))
    body = {**chat("one two three four five " * 40), "reasoning_effort": "low", "max_tokens": 1}

    async def hits(tenant: str, **more: Any) -> float:
        before = await served.metric("vllm:prefix_cache_hits_total")
        await served.post("/v1/chat/completions", {**body, **more}, headers={"x-tenant-id": tenant})
        return await served.metric("vllm:prefix_cache_hits_total") - before

    await hits("a")
    assert await hits("a") > 100
    assert await hits("b") == 0
    assert await hits("c", cache_salt="a") == 0


MALFORMED = [
    b"",
    b"{",
    b"null",
    b"[1, 2]",
    b"\xff\xfe\x00garbage",
    b'{"messages": "\xc3\x28"}',
    b"[" * 20_000,
    b'{"model":"tiny","messages":' + b"[" * 20_000,
    b'{"model":"tiny","messages":[{"role":"user","content":"\\ud800"}],"max_tokens":2}',
    b'{"model":"tiny","messages":[],"max_tokens":NaN}',
    b'{"model":"tiny","messages":[{"role":"user","content":"x"}],"max_tokens":1e400}',
    b'{"model":"tiny","messages":[{"role":"user","content":"x"}],"max_tokens":' + b"9" * 5000 + b"}",
]


def mutated(pick: random.Random) -> bytes:
    """A request with some fields replaced by values of a wrong kind."""
    body: dict[str, Any] = {
        **chat(),
        "prompt": "x",
        "input": "x",
        "max_tokens": 4,
        "max_completion_tokens": 4,
        "max_output_tokens": 4,
    }
    wrong = [None, True, -1, 0, 1.5, 10**30, "", "x", "\u0000", [], [[]], {}, {"": None}, [None, {"role": 1}]]
    fields = [
        *("messages", "model", "prompt", "input", "max_tokens", "stream", "n", "reasoning_effort", "reasoning"),
        *("thinking", "thinking_token_budget", "chat_template_kwargs", "tools", "cache_salt", "system", "priority"),
        *("stream_options", "response_format", "output_config", "thinking_required", "temperature", "stop"),
    ]
    for name in pick.sample(fields, pick.randrange(1, 4)):
        body[name] = pick.choice(wrong)
    raw = json.dumps(body).encode()
    if pick.random() < 0.2:
        cut = pick.randrange(len(raw))
        raw = raw[:cut] + bytes([pick.randrange(256)]) + raw[cut + pick.randrange(3) :]
    return raw


async def test_malformed_requests_do_no_harm(served: Served) -> None:
    await served.configure()
    pick = random.Random(4)
    paths = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"]
    requests = [(path, raw) for path in paths for raw in MALFORMED]
    requests += [(pick.choice(paths), mutated(pick)) for _ in range(200)]
    requests.append((paths[0], b" " * 50_000_000))
    kinds = [{}, {"content-type": "text/plain"}, {"x-reasoning-effort": "a\tb"}, {"x-vllm-priority": "first"}]
    room = asyncio.Semaphore(8)
    statuses: list[int] = []

    async def one(path: str, raw: bytes) -> None:
        async with room:
            try:
                reply = await served.post(path, raw, headers=pick.choice(kinds))
            except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
                return  # a huge body is refused while it is being sent
            statuses.append(reply.status)
            if reply.status >= 500:  # of vLLM's own making: without the middleware it answers the same
                assert b'"server_error"' not in reply.raw, (path, raw[:300])

    await asyncio.gather(*(one(path, raw) for path, raw in requests))
    assert len(statuses) >= len(requests) - 1
    assert await served.metric("reasoningpool_middleware_errors_total") == 0, served.log_tail()
    await until(lambda: idle(served), 10)

    async def nothing_held() -> bool:
        names = ("requests_in_flight", "admission_resident_tokens", "admission_queue_requests")
        return sum([await served.metric(f"reasoningpool_{name}") for name in names]) == 0

    await until(nothing_held, 5)
    assert (await served.post("/v1/chat/completions", {**chat(), "max_tokens": 4})).status == 200


async def test_admission_knows_the_pool_and_frees_it(served: Served) -> None:
    await served.configure()
    assert await served.metric("reasoningpool_admission_capacity_tokens") == 65_536 - 32
    assert await served.metric("reasoningpool_admission_committed_tokens") == 0
