"""Budgets on the real vLLM, with n-gram speculation, and how the server ends."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from served import CONFIG, Served, chat, serve, until

from engine.environment import EngineEnvironment
from reasoningpool_runtime import contract

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

REQUESTS = 24
AT_A_TIME = 8
NGRAM = '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}'


@pytest.fixture(scope="module")
def served(engine_environment: EngineEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(engine_environment, tmp_path_factory.mktemp("budgets"), f"--speculative-config={NGRAM}") as running:
        yield running


def request(pick: random.Random) -> tuple[str, dict[str, Any], str, bool]:
    effort = pick.choice(["low", "medium", "high"])
    stream = pick.random() < 0.5
    text = " ".join(pick.choices(["one", "two", "three", "Paris", "why"], k=pick.randrange(1, 20)))
    path = pick.choice(["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"])
    body: dict[str, Any] = {"model": "tiny", "stream": stream, "temperature": 0}
    total = pick.choice([None, 12, 30, 500])
    match path:
        case "/v1/completions":
            body |= {"prompt": f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n<think>\n"}
            body |= {"max_tokens": total or 40, "return_token_ids": True}
        case "/v1/responses":
            body |= {"input": text} | ({"max_output_tokens": total} if total else {})
        case _:
            body |= {"messages": [{"role": "user", "content": text}]}
            body |= {"max_tokens": total or 500} if total or path == "/v1/messages" else {}
    if stream and path == "/v1/chat/completions":
        body["stream_options"] = {"include_usage": True}
    body |= {"reasoning": {"effort": effort}} if path == "/v1/responses" else {"reasoning_effort": effort}
    return path, body, effort, stream


async def thinking_and_answer(served: Served, path: str, body: dict[str, Any], end_id: int) -> tuple[int, str, Any]:
    """Thinking tokens, answer text, headers."""
    reply = await served.post(path, body)
    assert reply.status == 200, reply.raw
    whole, events = reply.body, reply.events
    match path:
        case "/v1/chat/completions":
            usage = events[-1]["usage"] if events else whole["usage"]
            parts = [c["delta"] for e in events for c in e["choices"]] if events else [whole["choices"][0]["message"]]
            answer = "".join(part.get("content") or "" for part in parts)
            return usage["completion_tokens_details"]["reasoning_tokens"], answer, reply.headers
        case "/v1/completions":
            choices = [e["choices"][0] for e in events if e["choices"]] if events else whole["choices"]
            ids = [token for choice in choices for token in choice.get("token_ids") or ()]
            thinking = ids.index(end_id) if end_id in ids else len(ids)
            return thinking, "".join(choice["text"] for choice in choices).partition("</think>")[2], reply.headers
        case "/v1/responses":
            last = events[-1]["response"] if events else whole
            texts = [p["text"] for item in last["output"] if item["type"] == "message" for p in item["content"]]
            return last["usage"]["output_tokens_details"]["reasoning_tokens"], "".join(texts), reply.headers
        case _:
            if not events:
                texts = {part["type"]: part.get("text") or part.get("thinking") for part in whole["content"]}
                ids = (await served.post("/tokenize", {"model": "tiny", "prompt": texts.get("thinking", "")})).body
                # Text of random tokens may be cut into other tokens than it was made of; never into fewer.
                return (
                    min(ids["count"], int(reply.headers[contract.THINKING_BUDGET_HEADER])),
                    texts["text"],
                    reply.headers,
                )
            deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
            thinking = sum(delta["type"] == "thinking_delta" for delta in deltas)
            return thinking, "".join(delta.get("text") or "" for delta in deltas), reply.headers


async def test_every_budget_holds_on_every_api(served: Served) -> None:
    pick = random.Random(9)
    room = asyncio.Semaphore(AT_A_TIME)
    end_id = (await served.post("/tokenize", {"model": "tiny", "prompt": "</think>"})).body["tokens"][0]

    async def one(path: str, body: dict[str, Any], effort: str) -> None:
        async with room:
            thinking, answer, headers = await thinking_and_answer(served, path, body, end_id)
        budget, total = (int(headers[name]) for name in (contract.THINKING_BUDGET_HEADER, contract.MAX_TOKENS_HEADER))
        what = f"{path} {body}"
        allowed = CONFIG.effort(effort)
        assert allowed is not None
        assert headers[contract.APPLIED_EFFORT_HEADER] == effort, what
        assert budget <= allowed.thinking_tokens, what
        assert total <= allowed.total_tokens, what
        assert thinking <= budget, what
        assert answer, what
        # vLLM ends a thought one or two tokens early, for those of the template.
        exhausted.append(thinking >= budget - 2)

    exhausted: list[bool] = []
    requests = [request(pick) for _ in range(REQUESTS)]
    await asyncio.gather(*(one(path, body, effort) for path, body, effort, _ in requests))
    # The model ends a thought by itself in one of 2,000 tokens: budgets are what ended nearly all.
    assert sum(exhausted) > 0.8 * REQUESTS
    assert await served.metric("reasoningpool_middleware_errors_total") == 0


async def test_the_probe_finds_that_the_engine_holds_budgets(served: Served) -> None:
    async def known() -> bool:
        return await served.metric("reasoningpool_thinking_budget_enforced") == 1

    await until(known)


async def test_after_sigterm_requests_in_flight_finish_and_new_ones_are_refused(served: Served) -> None:
    """The last test of this server."""
    long = contract.Effort(name="medium", thinking_tokens=200, answer_tokens=40)
    await served.configure(efforts=(CONFIG.efforts[0], long))
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{served.base_url}/v1/chat/completions", json={**chat(), "stream": True}) as running,
    ):
        await running.content.readline()
        served.process.send_signal(signal.SIGTERM)

        async def unready() -> bool:
            return (await served.get(contract.READY_PATH))[0] == 503

        await until(unready, 10)
        refused = await served.post("/v1/chat/completions", chat())
        assert refused.status == 503
        assert refused.headers["retry-after"] == "5"
        assert refused.body["error"]["code"] == "draining"
        rest = await running.content.read()
    assert rest.rstrip().endswith(b"data: [DONE]")
    await asyncio.to_thread(served.process.wait, 60)
