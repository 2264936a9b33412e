"""Requests and admission together, in front of an application that behaves as vLLM does."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from reasoningpool_runtime.admission import AdmissionConfig
from reasoningpool_runtime.contract import Admission, Effort

if TYPE_CHECKING:
    from stack import Stack

DEADLINE_S = 60.0
BLOCK_TOKENS = 16
EFFORTS = (
    Effort(name="low", thinking_tokens=0, answer_tokens=64),
    Effort(name="medium", thinking_tokens=128, answer_tokens=64),
)


def give_pool(stack: Stack, blocks: int) -> None:
    """An engine that reports a pool of so many usable blocks."""
    config = SimpleNamespace(
        cache_config=SimpleNamespace(num_gpu_blocks=blocks + 1, block_size=BLOCK_TOKENS),
        scheduler_config=SimpleNamespace(max_num_seqs=256),
    )
    state = SimpleNamespace(engine_client=SimpleNamespace(vllm_config=config))
    stack.runtime.gate.find_pool({"app": SimpleNamespace(state=state)})


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


def held(stack: Stack, sample: Callable[..., float]) -> float:
    stack.runtime.gate.publish()
    return sample("admission_committed_tokens") + sample("admission_queue_requests") + stack.runtime.lifecycle.in_flight


async def test_a_request_waits_for_room_and_a_full_queue_refuses(stack: Stack, sample: Callable[..., float]) -> None:
    stack.configure(admission=Admission(max_queued_requests=1))
    give_pool(stack, blocks=14)  # one request of the default effort: 192 tokens and its prompt
    stack.vllm.hold = asyncio.Event()
    first = asyncio.create_task(stack.chat())
    await until(lambda: stack.vllm.running == 1)
    second = asyncio.create_task(stack.chat())
    await until(lambda: stack.runtime.lifecycle.in_flight == 2)
    refused = await stack.chat()
    assert refused.status == 503
    assert refused.json()["error"]["code"] == "queue_full"
    assert int(refused.headers["retry-after"]) >= 1
    assert stack.vllm.running == 1
    stack.vllm.hold.set()
    assert [reply.status for reply in await asyncio.gather(first, second)] == [200, 200]
    assert held(stack, sample) == 0


async def test_a_client_that_hangs_up_while_waiting_leaves_the_queue(
    stack: Stack, sample: Callable[..., float]
) -> None:
    give_pool(stack, blocks=14)
    stack.vllm.hold = asyncio.Event()
    first = asyncio.create_task(stack.chat())
    await until(lambda: stack.vllm.running == 1)
    client = stack.client()
    waiting = asyncio.create_task(client.request("/v1/chat/completions", {"messages": []}))
    await until(lambda: stack.runtime.lifecycle.in_flight == 2)
    client.hang_up()
    await asyncio.wait_for(waiting, DEADLINE_S)
    stack.vllm.hold.set()
    await first
    assert len(stack.vllm.bodies) == 1
    assert held(stack, sample) == 0


async def test_a_wait_has_an_end(stack: Stack) -> None:
    stack.configure(admission=Admission(max_wait_seconds=0.1))
    give_pool(stack, blocks=14)
    stack.vllm.hold = asyncio.Event()
    first = asyncio.create_task(stack.chat())
    await until(lambda: stack.vllm.running == 1)
    refused = await stack.chat()
    assert (refused.status, refused.json()["error"]["code"]) == (503, "wait_timeout")
    stack.vllm.hold.set()
    await first


async def test_nothing_is_held_after_any_mix_of_requests(stack: Stack, sample: Callable[..., float]) -> None:
    """Streamed, plain, dropped, cancelled, malformed, refused and failed ones, while the configuration changes."""
    give_pool(stack, blocks=60)
    stack.vllm.thinking, stack.vllm.answer = ["hm "] * 10, ["word "] * 10
    pick = random.Random(7)
    room = asyncio.Semaphore(32)
    errors = sample("middleware_errors_total", where="request")

    async def one() -> None:
        async with room:
            await asyncio.sleep(0)
            client = stack.client()
            task = asyncio.create_task(client.request(pick.choice(PATHS), a_body(pick)))
            end = pick.random()
            if end < 0.2:
                for _ in range(pick.randrange(30)):
                    await asyncio.sleep(0)
                client.hang_up()
            elif end < 0.3:
                for _ in range(pick.randrange(30)):
                    await asyncio.sleep(0)
                task.cancel()
            elif end < 0.32:
                changed = (*EFFORTS[:1], Effort(name="medium", thinking_tokens=pick.randrange(200), answer_tokens=64))
                stack.configure(efforts=changed)
            await asyncio.gather(task, return_exceptions=True)

    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(one() for _ in range(1000)))
    assert held(stack, sample) == 0
    assert not stack.runtime.exchanges
    assert stack.vllm.running == 0
    assert sample("middleware_errors_total", where="request") == errors


PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")


def a_body(pick: random.Random) -> Any:
    if pick.random() < 0.1:
        return pick.choice([b"", b"{", b"\xff", b"[]"])
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "x" * pick.randrange(200)}], "prompt": "x"}
    body |= {"stream": pick.random() < 0.5, "reasoning_effort": pick.choice(["low", "medium", "wrong"])}
    if pick.random() < 0.3:
        body["n"] = pick.choice([1, 2, 99, "x"])
    return json.dumps(body).encode()


@pytest.mark.parametrize("config", [None, SimpleNamespace(), SimpleNamespace(cache_config=SimpleNamespace())])
async def test_without_a_known_pool_everything_passes(stack: Stack, config: object) -> None:
    state = SimpleNamespace(engine_client=SimpleNamespace(vllm_config=config))
    stack.runtime.gate.find_pool({"app": SimpleNamespace(state=state)})
    assert (await stack.chat()).status == 200


def test_the_contract_has_admissions_own_defaults() -> None:
    own = AdmissionConfig()
    assert {name: getattr(own, name) for name in vars(Admission())} == vars(Admission())
