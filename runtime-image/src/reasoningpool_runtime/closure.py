"""Ends a thought at its budget where the engine does not, and has the model answer.

The request runs as a stream that the runtime watches. When the thinking reaches its budget, that stream is dropped, the
end of the thinking is appended to the tokens so far, and `/v1/completions` continues from there by token ids: the
prefix cache has nearly all of it. A grammar (structured output) begins after the end of the thinking, so it holds.
The client sees one response.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reasoningpool_runtime import asgi, sse
from reasoningpool_runtime.closure_output import Output, StreamOutput, WholeOutput
from reasoningpool_runtime.engine import Usage
from reasoningpool_runtime.errors import RefusalError
from reasoningpool_runtime.inner import InnerCall, InnerCallError

if TYPE_CHECKING:
    from reasoningpool_runtime.asgi import App, Receive, Scope, Send
    from reasoningpool_runtime.contract import Thinking
    from reasoningpool_runtime.plan import Plan
    from reasoningpool_runtime.response import Response

# Of a chat request, what means the same to /v1/completions.
_CONTINUED = (
    *("model", "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty"),
    *("seed", "stop", "stop_token_ids", "include_stop_str_in_output", "skip_special_tokens", "logit_bias", "bad_words"),
    *("allowed_token_ids", "ignore_eos", "response_format", "structured_outputs", "cache_salt", "priority"),
    *("repetition_detection", "user", "session_id"),
)


@dataclass
class _Thought:
    """The first stream, as far as it has come."""

    prompt_ids: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    answering: bool = False


class ClosingApp:
    """The application for one chat request: vLLM, with the thinking held to its budget."""

    def __init__(self, app: App, thinking: Thinking, plan: Plan, scopes: list[Scope], response: Response) -> None:
        self._app = app
        self._thinking = thinking
        self._plan = plan
        self._scopes = scopes
        self._response = response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        output: Output = StreamOutput(send, self._plan.body) if self._plan.streamed else WholeOutput(send)
        try:
            await asgi.unless_disconnected(self._run(scope, send, output), receive)
        except InnerCallError as error:
            if not await output.fail(str(error)):
                raise RefusalError(
                    503, "engine_failed", f"The engine failed: {error}.", retry_after_seconds=5
                ) from error

    async def _run(self, scope: Scope, send: Send, output: Output) -> None:
        body = self._plan.body
        first = {**body, "stream": True, "return_token_ids": True, "stream_options": {"include_usage": True}}
        thought = _Thought()
        async with InnerCall(self._app, scope, "/v1/chat/completions", first) as call:
            self._scopes.append(call.scope)
            if call.status != 200:
                await _pass_on(call, send)
                return
            finished = await self._think(call, thought, output)
        if not finished:
            self._response.closed_thinking = True
            await self._conclude(scope, thought, output)

    async def _think(self, call: InnerCall, thought: _Thought, output: Output) -> bool:
        """Pass the stream on; False when it was cut because the thinking has reached its budget."""
        await output.start(call.headers)
        async for data in _payloads(call):
            thought.prompt_ids = data.pop("prompt_token_ids", None) or thought.prompt_ids
            for choice in data.get("choices") or ():
                ids = choice.pop("token_ids", None) or []
                thought.answering = thought.answering or bool(choice["delta"].get("content"))
                if not thought.answering and len(thought.ids) + len(ids) > self._plan.budget.thinking_tokens:
                    thought.ids += ids[: self._plan.budget.thinking_tokens - len(thought.ids)]
                    return False
                thought.ids += ids
            await output.chunk(data)
        await output.end()
        return True

    async def _conclude(self, scope: Scope, thought: _Thought, output: Output) -> None:
        closing = await self._tokens(scope, self._thinking.closing_text)
        body = {name: self._plan.body[name] for name in _CONTINUED if name in self._plan.body}
        body |= {
            "prompt": thought.prompt_ids + thought.ids + closing,
            "max_tokens": max(1, self._plan.budget.max_tokens - len(thought.ids) - len(closing)),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        answered = 0
        async with InnerCall(self._app, scope, "/v1/completions", body) as call:
            self._scopes.append(call.scope)
            if call.status != 200:
                raise InnerCallError(f"the continuation was refused with {call.status}")
            async for data in _payloads(call):
                if usage := data.get("usage"):
                    answered = usage["completion_tokens"]
                for choice in data.get("choices") or ():
                    await output.text(choice.get("text") or "", choice.get("finish_reason"))
        total = Usage(len(thought.prompt_ids), len(thought.ids) + answered, len(thought.ids))
        self._response.merged_usage = total
        await output.end(total)

    async def _tokens(self, scope: Scope, text: str) -> list[int]:
        async with InnerCall(self._app, scope, "/tokenize", {"prompt": text, "add_special_tokens": False}) as call:
            return list((await call.json())["tokens"])


async def _payloads(call: InnerCall) -> AsyncIterator[dict[str, Any]]:
    splitter = sse.EventSplitter()
    async for chunk in call.chunks():
        for event in splitter.feed(chunk):
            data = sse.payload(event)
            if isinstance(data, dict):
                if "error" in data:
                    raise InnerCallError(str(data["error"]))
                yield data


async def _pass_on(call: InnerCall, send: Send) -> None:
    body = b"".join([chunk async for chunk in call.chunks()])
    await send({"type": "http.response.start", "status": call.status, "headers": call.headers})
    await send({"type": "http.response.body", "body": body})
