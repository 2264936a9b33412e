"""Which replica of a tier serves a request."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from gateway.conftest import Replica, Running, free_port, gateway_of, running_envoy, serving, tier

CHAT = "/v1/chat/completions"
ARRIVAL_DEADLINE_S = 10.0


@pytest_asyncio.fixture
async def two_replicas(envoy_folder: Path, monkeypatch) -> AsyncIterator[tuple[Running, list[Replica]]]:
    """One tier whose name resolves to two addresses."""
    port = free_port()
    replicas = [Replica(f"replica-{i}", f"127.0.0.{i + 2}", port) for i in range(2)]
    gateway = gateway_of(tier("chat", port))
    monkeypatch.setattr("gateway.conftest.bootstrap", lambda found: _with_addresses(found, replicas))
    async with serving(replicas[0]), serving(replicas[1]), running_envoy(gateway, envoy_folder) as running:
        yield running, replicas


def _with_addresses(gateway, replicas: list[Replica]) -> dict:
    """The rendered bootstrap; addresses stand in for what a cluster's DNS would answer."""
    from reasoningpool.render.gateway.bootstrap import bootstrap

    document = bootstrap(gateway)
    cluster = document["static_resources"]["clusters"][0]
    del cluster["cluster_type"]
    cluster["type"] = "STATIC"
    cluster["load_assignment"]["endpoints"][0]["lb_endpoints"] = [
        {"endpoint": {"address": {"socket_address": {"address": r.address, "port_value": r.port}}}} for r in replicas
    ]
    return document


def messages(system: str, question: str, *more: str) -> dict:
    turns = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    turns += [{"role": "assistant" if i % 2 == 0 else "user", "content": text} for i, text in enumerate(more)]
    return {"model": "math-chat", "messages": turns}


async def replica_of(running: Running, request: dict, **headers: str) -> str:
    answer = await running.client.post(CHAT, json=request, headers={k.replace("_", "-"): v for k, v in headers.items()})
    return str(answer.json()["replica"])


async def test_requests_with_one_long_system_prompt_reach_one_replica(two_replicas) -> None:
    running, _ = two_replicas
    for number in range(6):
        system = f"tenant {number}: " + "rules " * 300
        found = {await replica_of(running, messages(system, f"question {i}")) for i in range(6)}
        assert len(found) == 1


async def test_different_system_prompts_are_spread(two_replicas) -> None:
    running, _ = two_replicas
    found = Counter(
        [await replica_of(running, messages(f"tenant {n}: " + "rules " * 300, "question")) for n in range(64)]
    )
    assert min(found.values()) >= 64 / 4
    assert len(found) == 2


async def test_a_short_system_prompt_does_not_send_all_requests_to_one_replica(two_replicas) -> None:
    running, _ = two_replicas
    found = {await replica_of(running, messages("You are helpful.", f"question {i}")) for i in range(24)}
    assert len(found) == 2


async def test_the_turns_of_a_conversation_reach_one_replica(two_replicas) -> None:
    running, _ = two_replicas
    for number in range(8):
        turns = [f"turn {i} of {number}" for i in range(6)]
        found = {
            await replica_of(running, messages("You are helpful.", f"start of {number}", *turns[:i]))
            for i in range(1, 7)
        }
        assert len(found) == 1


async def test_a_session_stays_where_it_is_whatever_its_prompts(two_replicas) -> None:
    running, _ = two_replicas
    for session in range(6):
        found = {
            await replica_of(running, messages("rules " * 300, f"{session} {i}"), x_session_id=f"s{session}")
            for i in range(6)
        }
        assert len(found) == 1


async def test_escaped_quotes_do_not_end_a_text(two_replicas) -> None:
    """Two long system prompts that differ behind an escaped quote are two prefixes."""
    running, _ = two_replicas
    start = 'say "' + "x" * 10
    found = {await replica_of(running, messages(start + f'" {n} ' + "y" * 2000, "q")) for n in range(24)}
    assert len(found) == 2


async def test_a_replica_with_too_many_running_requests_passes_further_ones_on(two_replicas) -> None:
    running, replicas = two_replicas
    for replica in replicas:
        replica.hold = asyncio.Event()
    request = messages("rules " * 300, "one prefix for all")
    tasks = []
    for number in range(1, 41):  # one after the other: a request counts once it has its connection
        tasks.append(asyncio.create_task(replica_of(running, request)))
        async with asyncio.timeout(ARRIVAL_DEADLINE_S):
            while sum(len(replica.requests) for replica in replicas) < number:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.005)
    held = sorted(len(replica.requests) for replica in replicas)
    for replica in replicas:
        assert replica.hold is not None
        replica.hold.set()
    await asyncio.gather(*tasks)
    assert held[1] <= 1 + 1.25 * 40 / 2  # of two replicas, rounded up
