"""The middleware in front of a fake vLLM."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fake_vllm import Client, FakeVllm, Reply

from reasoningpool_runtime import contract
from reasoningpool_runtime.contract import Effort, RuntimeConfig, Thinking
from reasoningpool_runtime.middleware import Middleware

CONFIG = RuntimeConfig(
    tier="test",
    efforts=(
        Effort(name="low", thinking_tokens=0, answer_tokens=64),
        Effort(name="medium", thinking_tokens=128, answer_tokens=64),
    ),
    default_effort="medium",
    prompt_tokens=100,
    thinking=Thinking(on={"enable_thinking": True}, off={"enable_thinking": False}),
)


class Stack:
    """The middleware in front of a fake vLLM."""

    def __init__(self, directory: Path) -> None:
        self.config_path = directory / "config.json"
        self.state_dir = directory / "state"
        self.vllm = FakeVllm()
        self.configure()
        self.middleware = Middleware(self.vllm)
        self.runtime = self.middleware.runtime

    def configure(self, **changes: Any) -> None:
        """Write the configuration and have it read."""
        self.config_path.write_text(contract.dumps(replace(CONFIG, **changes)))
        if hasattr(self, "runtime"):
            self.runtime._reload()

    def client(self) -> Client:
        return Client(self.middleware)

    async def chat(self, *, path: str = "/v1/chat/completions", headers: Any = None, **body: Any) -> Reply:
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **body}
        return await self.client().request(path, body, headers=headers)
