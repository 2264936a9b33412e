"""How a pod of the gateway stops: the command that the kubelet runs before SIGTERM, with a real Envoy."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from gateway.conftest import READY_DEADLINE_S, Replica, free_port, gateway_of, running_envoy, serving, tier
from reasoningpool.render.gateway.deployment import drain_command

CHAT = "/v1/chat/completions"
BODY = {"model": "math-chat", "messages": [{"role": "user", "content": "hello"}]}


async def test_a_drain_ends_readiness_at_once_and_itself_when_the_last_request_has_its_answer(
    envoy_folder: Path,
) -> None:
    replica = Replica("chat", "127.0.0.1", free_port(), hold=asyncio.Event())
    gateway = gateway_of(tier("chat", replica.port))
    async with serving(replica), running_envoy(gateway, envoy_folder) as running:
        answer = asyncio.create_task(running.client.post(CHAT, json=BODY))
        await asyncio.wait_for(replica.reached.wait(), READY_DEADLINE_S)
        drain = await asyncio.create_subprocess_exec(*drain_command(gateway, settle_seconds=0))
        ready = f"http://127.0.0.1:{gateway.health_port}/readyz"
        async with asyncio.timeout(READY_DEADLINE_S), httpx.AsyncClient() as client:
            while True:
                if (await client.get(ready)).status_code == httpx.codes.SERVICE_UNAVAILABLE:
                    break
                await asyncio.sleep(0.02)
        assert drain.returncode is None
        assert replica.hold is not None
        replica.hold.set()
        assert (await answer).json() == {"replica": "chat"}
        assert (await answer).headers["connection"] == "close"
        assert await asyncio.wait_for(drain.wait(), READY_DEADLINE_S) == 0


async def test_a_drain_of_a_dead_envoy_ends() -> None:
    gateway = gateway_of(tier("chat", free_port()))
    drain = await asyncio.create_subprocess_exec(*drain_command(gateway))
    assert await asyncio.wait_for(drain.wait(), READY_DEADLINE_S) == 0
