"""The official Anthropic client, unmodified; run with vLLM's Python. Argument: the server's address."""

from __future__ import annotations

import sys

import anthropic

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0)
MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]

answer = client.messages.create(model="tiny", max_tokens=40, messages=MESSAGES)
assert [part.type for part in answer.content] == ["thinking", "text"]
assert answer.usage.output_tokens <= 40

# More than the tier allows is clamped, and the budget of any effort holds, also below the 1,024 of Anthropic's API.
raw = client.messages.with_raw_response.create(
    model="tiny", max_tokens=4096, messages=MESSAGES, thinking={"type": "enabled", "budget_tokens": 2048}
)
assert raw.headers["x-reasoningpool-thinking-budget"] == "60"
assert raw.parse().usage.output_tokens <= 84

silent = client.messages.create(model="tiny", max_tokens=20, messages=MESSAGES, thinking={"type": "disabled"})
assert [part.type for part in silent.content] == ["text"]

with client.messages.stream(model="tiny", max_tokens=40, messages=MESSAGES) as stream:
    for _ in stream:
        pass
    assert [part.type for part in stream.get_final_message().content] == ["thinking", "text"]

try:
    client.messages.create(model="tiny", max_tokens=9, messages=MESSAGES, extra_body={"thinking_budget": 5})
except anthropic.BadRequestError as error:
    assert "thinking_token_budget" in str(error)
else:
    raise AssertionError("a misspelt field was accepted")
