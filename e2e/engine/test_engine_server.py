"""The real server with the tiny model: what the demo and the tests of tiers stand on."""

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import models, server
from engine.client import Reply, stream_chat
from engine.environment import EngineEnvironment
from engine.server import LIGHT, Server

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def thinking(engine_environment: EngineEnvironment, tiny_model: Path) -> Iterator[Server]:
    with server.serve(tiny_model, [*LIGHT, "--served-model-name=tiny"], engine=engine_environment) as running:
        yield running


@pytest.fixture(scope="module")
def chatting(engine_environment: EngineEnvironment, tiny_model: Path) -> Iterator[Server]:
    switch = '--default-chat-template-kwargs={"enable_thinking": false}'
    with server.serve(tiny_model, [*LIGHT, "--served-model-name=tiny", switch], engine=engine_environment) as running:
        yield running


def ask(to: Server, question: str, **fields: Any) -> Reply:
    return stream_chat(to.base_url, "tiny", question, temperature=0, **fields)


def test_thinking_is_streamed_before_the_answer(thinking: Server) -> None:
    reply = ask(thinking, "What is the capital of France?")
    assert reply.kinds == sorted(reply.kinds, reverse=True)  # "reasoning" first, then "content", never back
    assert len(reply.kinds) > 20
    assert "Its capital is Paris." in reply.thinking
    assert reply.answer == "The capital of France is Paris."
    assert "think>" not in reply.thinking + reply.answer
    assert 0 < reply.thinking_tokens < reply.completion_tokens
    assert reply.finish_reason == "stop"


def test_budget_cuts_the_thinking_and_an_answer_follows(thinking: Server) -> None:
    whole = ask(thinking, "Why is the sky blue?")
    cut = ask(thinking, "Why is the sky blue?", thinking_token_budget=12)
    assert cut.thinking_tokens == 11  # the template's line break is one of the 12
    assert cut.thinking_tokens < whole.thinking_tokens
    assert whole.thinking.startswith(cut.thinking)
    assert "blue light" in cut.answer


def test_chat_default_answers_without_thinking(chatting: Server) -> None:
    reply = ask(chatting, "How many legs does a spider have?")
    assert set(reply.kinds) == {"content"}
    assert reply.answer
    assert reply.thinking_tokens == 0
    assert reply.finish_reason == "stop"


def test_request_may_switch_thinking_on_again(chatting: Server) -> None:
    reply = ask(chatting, "What is a pod?", chat_template_kwargs={"enable_thinking": True})
    assert reply.thinking
    assert reply.answer


def test_generation_can_be_kept_going(thinking: Server) -> None:
    reply = ask(thinking, "Hello!", ignore_eos=True, max_tokens=1500)
    assert reply.completion_tokens == 1500
    assert reply.finish_reason == "length"


def test_token_takes_the_documented_memory(thinking: Server) -> None:
    with urllib.request.urlopen(f"{thinking.base_url}/metrics", timeout=30) as response:
        line = next(line for line in response.read().decode().splitlines() if line.startswith("vllm:cache_config_info"))
    labels = dict(re.findall(r'(\w+)="(.*?)"', line))
    tokens = int(labels["num_gpu_blocks"]) * int(labels["block_size"])
    assert tokens * models.TINY_KV_BYTES_PER_TOKEN == 64 * 2**20


def test_untrained_model_thinks_to_the_end(engine_environment: EngineEnvironment) -> None:
    model = models.ensure_tiny("tiny-random", engine=engine_environment)
    with server.serve(model, [*LIGHT, "--served-model-name=tiny"], engine=engine_environment) as running:
        reply = ask(running, "Hello!", ignore_eos=True, max_tokens=200)
        assert set(reply.kinds) == {"reasoning"}
        assert reply.completion_tokens == 200
        process = running.process
    assert process.returncode is not None
