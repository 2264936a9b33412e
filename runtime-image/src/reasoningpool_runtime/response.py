"""The way of a response back to the client: headers added, thinking hidden, times and tokens noted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reasoningpool_runtime import asgi, engine
from reasoningpool_runtime.apis import Api
from reasoningpool_runtime.engine import Usage
from reasoningpool_runtime.errors import RefusalError, error_body
from reasoningpool_runtime.hide import StreamHider, without_thinking
from reasoningpool_runtime.watch import ResponseWatch

if TYPE_CHECKING:
    from reasoningpool_runtime.asgi import Message, Receive, Scope, Send
    from reasoningpool_runtime.plan import Plan
    from reasoningpool_runtime.runtime import Runtime
    from reasoningpool_runtime.trace_log import Trace


class Response:
    """Stands between vLLM's `send` and the client's."""

    def __init__(
        self, runtime: Runtime, api: Api, plan: Plan, *, send: Send, arrived: float, trace: Trace | None
    ) -> None:
        self._runtime = runtime
        self._api = api
        self._plan = plan
        self._send = send
        self._arrived = arrived
        self._trace = trace
        # The text of /v1/completions holds the thinking too, so where its answer begins cannot be seen.
        self._watch = ResponseWatch(api, answer_is_text=api is not Api.COMPLETIONS or not plan.budget.thinks)
        self._hider: StreamHider | None = None
        self._held: Message | None = None  # the start of a response whose body is being collected
        self._collected: list[bytes] = []
        self._streamed = False
        self._watching = True
        self.status = 0
        self.finished = False
        self.disconnected = False
        self.closed_thinking = False
        self.merged_usage: Usage | None = None  # of a request that ran in two parts

    def watching(self, receive: Receive) -> Receive:
        """The same `receive`, noting when the client goes before the response is complete."""

        async def watched() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" and not self.finished:
                self.disconnected = True
            return message

        return watched

    async def send(self, message: Message) -> None:
        """What vLLM sends."""
        if message["type"] == "http.response.start":
            await self._start(message)
        elif message["type"] == "http.response.body":
            await self._body(message)
        else:
            await self._send(message)

    def close(self, tier: str, scopes: Sequence[Scope]) -> Usage | None:
        """Write the metrics of a completed response; its usage, where vLLM tells."""
        if self.status != 200:
            return None
        metrics, labels = self._runtime.metrics, (tier, self._plan.budget.effort.name)
        if self._streamed and self._watch.first_answer_at is not None:
            metrics.first_answer.labels(*labels).observe(self._watch.first_answer_at - self._arrived)
        if cut := self._watch.cut_outputs():
            metrics.length_finishes.labels(*labels, "answer" if self._watch.answered else "thinking").inc(cut)
        if self.closed_thinking:
            metrics.closures.labels(*labels).inc()
        usage = self._usage(scopes)
        if usage is not None:
            metrics.answer.labels(*labels).observe(usage.output - (usage.thinking or 0))
            if usage.thinking is not None:
                metrics.thinking.labels(*labels).observe(usage.thinking)
        if self._trace is not None:
            self._trace.write(self._api, streamed=self._streamed, usage=usage)
        return usage

    def _usage(self, scopes: Sequence[Scope]) -> Usage | None:
        if self.merged_usage is not None:
            return self.merged_usage
        parts = [usage for scope in scopes if (usage := engine.usage_of(scope)) is not None]
        if not parts:
            return self._watch.usage()
        return parts[0]

    async def _start(self, message: Message) -> None:
        self.status = message["status"]
        headers = list(message.get("headers", ()))
        kind = next((value for name, value in headers if name.lower() == b"content-type"), b"")
        self._streamed = kind.startswith(b"text/event-stream")
        headers += [(name.encode(), value.encode("latin-1", "replace")) for name, value in self._plan.headers.items()]
        message = {**message, "headers": headers}
        if self._plan.hides and self.status == 200:
            if self._streamed:
                self._hider = StreamHider(self._api)
            else:
                self._held = message
                return
        await self._send(message)

    async def _body(self, message: Message) -> None:
        body, more = message.get("body", b""), message.get("more_body", False)
        if body and self._watching:
            self._note(body)
        self.finished = not more
        if self._held is not None:
            await self._collect(body, more=more)
        elif self._hider is not None:
            shown = self._shown(body, more=more)
            if shown or not more:
                await self._send({**message, "body": shown})
        else:
            await self._send(message)

    def _note(self, body: bytes) -> None:
        try:
            self._watch.chunk(body, self._runtime.now())
            if self._trace is not None:
                self._trace.chunk(body)
        except Exception:  # noqa: BLE001 - the response matters more than what is noted about it
            self._watching = False
            self._runtime.fault("watch")

    async def _collect(self, body: bytes, *, more: bool) -> None:
        self._collected.append(body)
        if more or self._held is None:
            return
        try:
            whole = without_thinking(self._api, b"".join(self._collected))
        except Exception:  # noqa: BLE001 - rather no response than thinking that must not be seen
            self._runtime.fault("hide")
            refusal = RefusalError(503, "internal_error", "The request runtime failed.")
            await asgi.answer(self._send, refusal.status, error_body(self._api, refusal))
            return
        headers = [(name, value) for name, value in self._held["headers"] if name.lower() != b"content-length"]
        headers.append((b"content-length", str(len(whole)).encode()))
        await self._send({**self._held, "headers": headers})
        await self._send({"type": "http.response.body", "body": whole})

    def _shown(self, body: bytes, *, more: bool) -> bytes:
        if self._hider is None:
            return b""
        try:
            return self._hider.feed(body) + (b"" if more else self._hider.close())
        except Exception:  # noqa: BLE001 - rather too little than thinking that must not be seen
            self._runtime.fault("hide")
            return b""
