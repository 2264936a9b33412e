"""The real vLLM with the middleware, and requests to it."""

from __future__ import annotations

import asyncio
import io
import json
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp

from engine import models, server
from engine.environment import EngineEnvironment
from engine.server import LIGHT
from reasoningpool_runtime import contract, sse
from reasoningpool_runtime.contract import Effort, RuntimeConfig, Thinking

SOURCE = Path(__file__).parents[1] / "src"
DEADLINE_S = 60.0
SWITCH = {"on": {"enable_thinking": True}, "off": {"enable_thinking": False}}
CONFIG = RuntimeConfig(
    tier="initial",
    efforts=(
        Effort(name="low", thinking_tokens=0, answer_tokens=24),
        Effort(name="medium", thinking_tokens=24, answer_tokens=16),
        Effort(name="high", thinking_tokens=60, answer_tokens=24),
    ),
    default_effort="medium",
    prompt_tokens=1024,
    thinking=Thinking(**SWITCH),
)


@dataclass
class Reply:
    """`events` are the payloads of a stream; `body` is a whole response."""

    status: int
    headers: dict[str, str]
    body: Any = None
    events: list[dict[str, Any]] = field(default_factory=list)
    raw: bytes = b""


@dataclass
class Served:
    """A running server."""

    base_url: str
    config_path: Path
    process: Any
    log_tail: Callable[[], str]

    async def configure(self, **changes: Any) -> None:
        """Write a configuration and wait until responses come from it."""
        tier = f"tier-{secrets.token_hex(4)}"
        config = replace(CONFIG, tier=tier, **changes)
        new = self.config_path.with_suffix(".new")
        new.write_text(contract.dumps(config))
        new.rename(self.config_path)

        async def in_force() -> bool:
            reply = await self.post("/v1/chat/completions", {**chat("Hi"), "max_tokens": 1, "reasoning_effort": "low"})
            return reply.headers.get(contract.TIER_HEADER) == tier

        await until(in_force)

    async def post(self, path: str, body: Any, *, headers: dict[str, str] | None = None) -> Reply:
        """A request read to its end; `body` may be bytes."""
        data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=DEADLINE_S)) as session,
            session.post(
                self.base_url + path, data=data, headers={"content-type": "application/json", **(headers or {})}
            ) as response,
        ):
            raw = await response.read()
            reply = Reply(response.status, {name.lower(): value for name, value in response.headers.items()}, raw=raw)
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                payloads = [sse.payload(event + b"\n") for event in raw.split(b"\n\n")]
                reply.events = [payload for payload in payloads if payload is not None]
            else:
                try:
                    reply.body = json.loads(raw)
                except ValueError:
                    reply.body = None
            return reply

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(self.base_url + path) as response:
            return response.status, await response.text()

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry these labels."""
        _, page = await self.get("/metrics")
        total = 0.0
        for line in page.splitlines():
            match = re.match(rf"{re.escape(name)}(?:{{(.*)}})? (\S+)$", line)
            if match and all(f'{key}="{value}"' in (match[1] or "") for key, value in labels.items()):
                total += float(match[2])
        return total


def chat(question: str = "What is the capital of France?") -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": question}]}


async def until(condition: Callable[[], Awaitable[bool]], deadline_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + deadline_s
    while not await condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {deadline_s:.0f} s")
        await asyncio.sleep(0.1)


@contextmanager
def serve(engine: EngineEnvironment, directory: Path, *arguments: str, args: Sequence[str] = LIGHT) -> Iterator[Served]:
    """VLLM with a model that thinks without end, behind the middleware."""
    config_path = directory / "config.json"
    config_path.write_text(contract.dumps(CONFIG))
    environment = {
        "PYTHONPATH": str(SOURCE),
        contract.CONFIG_VARIABLE: str(config_path),
        contract.STATE_DIR_VARIABLE: str(directory / "state"),
    }
    flags = ["--served-model-name=tiny", "--middleware", contract.MIDDLEWARE, "--shutdown-timeout=120", *arguments]
    model = models.ensure_tiny("tiny-random", engine=engine)
    with server.serve(model, [*args, *flags], environment, engine=engine) as running:
        yield Served(running.base_url, config_path, running.process, running.log_tail)
