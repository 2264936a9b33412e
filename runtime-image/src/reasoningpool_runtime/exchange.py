"""One governed request from its first byte to its last."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from reasoningpool_runtime import asgi, engine
from reasoningpool_runtime.admission import Outcome
from reasoningpool_runtime.asgi import BodyTooLargeError, ClientDisconnectedError
from reasoningpool_runtime.closure import ClosingApp
from reasoningpool_runtime.contract import InternalError
from reasoningpool_runtime.errors import RefusalError, error_body
from reasoningpool_runtime.plan import Abilities, Plan, make_plan
from reasoningpool_runtime.prompt_limit import check_prompt
from reasoningpool_runtime.response import Response

if TYPE_CHECKING:
    from reasoningpool_runtime.apis import Api
    from reasoningpool_runtime.asgi import App, Receive, Scope, Send
    from reasoningpool_runtime.contract import RuntimeConfig
    from reasoningpool_runtime.gate import Ticket
    from reasoningpool_runtime.runtime import Runtime

COMPLETED, REFUSED, FAILED, CANCELLED = "completed", "refused", "failed", "cancelled"
_OUTCOMES = {
    COMPLETED: Outcome.COMPLETED,
    REFUSED: Outcome.FAILED,
    FAILED: Outcome.FAILED,
    CANCELLED: Outcome.CANCELLED,
}


class Exchange:
    """Plans a request, has it admitted, passes it to vLLM and watches the response.

    Whatever fails inside ends in one of two ways (`config.on_internal_error`): the request goes to vLLM as the client
    sent it, or it is answered with 503.
    """

    def __init__(
        self, runtime: Runtime, config: RuntimeConfig, api: Api, *, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._api = api
        self._scope = scope
        self._receive = receive
        self._send = send
        self._arrived = runtime.now()
        self._plan: Plan | None = None
        self._ticket: Ticket | None = None
        self._response: Response | None = None
        self._seen: dict[tuple[int, int], int] = {}
        self._scopes: list[Scope] = []
        scope.setdefault("state", {})

    async def run(self) -> None:
        """Serve the request; never raises for reasons of its own."""
        runtime = self._runtime
        runtime.exchanges.add(self)
        runtime.lifecycle.in_flight += 1
        outcome = CANCELLED  # what it is when this task is cancelled
        try:
            outcome = await self._answer()
        except RefusalError as refusal:
            outcome = REFUSED
            await self._refuse(refusal)
        except ClientDisconnectedError:
            outcome = CANCELLED
        except Exception:
            outcome = FAILED  # of vLLM's making: its own handlers have not caught it either
            raise
        finally:
            runtime.lifecycle.in_flight -= 1
            runtime.exchanges.discard(self)
            self._finish(outcome)

    def look(self) -> None:
        """Tell admission how far the engine has come."""
        if self._ticket is None:
            return
        for position, scope in enumerate(self._scopes):
            for output in engine.outputs_of(scope):
                key = (position, output.index)
                new = output.generated_tokens - self._seen.get(key, 0)
                if new > 0:
                    self._seen[key] = output.generated_tokens
                    self._ticket.tokens_generated(new, output.index)

    async def _answer(self) -> str:
        if self._runtime.lifecycle.draining:
            raise self._unavailable("draining", "This server is shutting down.")
        try:
            raw = await asgi.read_body(self._receive, self._config.max_body_bytes)
        except BodyTooLargeError:
            most = self._config.max_body_bytes
            raise RefusalError(413, "body_too_large", f"The body has more than {most} bytes.") from None
        body = _parse(raw)
        if body is None:  # vLLM says best what is wrong with it, and generates nothing
            await self._runtime.app(self._scope, asgi.replaying(raw, self._receive), self._send)
            return FAILED
        try:
            self._plan = await self._prepare(body)
        except (RefusalError, ClientDisconnectedError):
            raise
        except Exception:  # noqa: BLE001 - decided by policy below
            self._runtime.fault("request")
            return await self._without_plan(raw)
        return await self._serve(self._plan)

    async def _prepare(self, body: dict[str, Any]) -> Plan:
        runtime = self._runtime
        abilities = Abilities(
            engine_holds_budgets=runtime.probe.enforced is not False,
            carries_budget=runtime.carries_budget,
            closes=runtime.closes(),
        )
        headers = asgi.headers_of(self._scope)
        plan = make_plan(self._config, self._api, body, headers, abilities=abilities, secret=runtime.salt_secret)
        tokens = await check_prompt(runtime, self._config, plan, self._scope)
        await asgi.unless_disconnected(self._admit(plan, tokens), self._receive)
        effort = (self._config.tier, plan.budget.effort.name)
        runtime.metrics.admission_wait.labels(*effort).observe(runtime.now() - self._arrived)
        self._count(plan, effort)
        return plan

    async def _admit(self, plan: Plan, prompt_tokens: int) -> None:
        # Kept here, so that no ticket is lost when this request is cancelled in the moment it is admitted.
        self._ticket = await self._runtime.gate.admit(plan, prompt_tokens)

    def _count(self, plan: Plan, effort: tuple[str, str]) -> None:
        metrics, tier = self._runtime.metrics, self._config.tier
        metrics.budget.labels(*effort).observe(plan.budget.thinking_tokens)
        for field in plan.budget.clamped:
            metrics.clamps.labels(tier, field).inc()
        if not plan.enforced and plan.budget.thinks:
            metrics.unenforced.labels(*effort).inc()
        if plan.stripped.messages:
            metrics.stripped_messages.labels(tier).inc(plan.stripped.messages)
            metrics.stripped_characters.labels(tier).inc(plan.stripped.characters)

    async def _serve(self, plan: Plan) -> str:
        runtime = self._runtime
        payload = json.dumps(plan.body).encode()
        scope = asgi.with_body_length(self._scope, len(payload))
        trace = runtime.trace_log.begin(plan.tenant.name, self._config.tier, plan.budget.effort.name, plan.body)
        response = Response(runtime, self._api, plan, send=self._send, arrived=self._arrived, trace=trace)
        self._response = response
        app: App = runtime.app
        if plan.closing:
            app = ClosingApp(runtime.app, self._config.thinking, plan, self._scopes, response)
        else:
            self._scopes.append(scope)
        token = engine.THINKING_BUDGET.set(plan.carried_budget)
        try:
            await app(scope, response.watching(asgi.replaying(payload, self._receive)), response.send)
        finally:
            engine.THINKING_BUDGET.reset(token)
        if response.disconnected:
            return CANCELLED
        return COMPLETED if response.status < 400 else FAILED

    async def _without_plan(self, raw: bytes) -> str:
        if self._config.on_internal_error is InternalError.REFUSE:
            raise self._unavailable("internal_error", "The request runtime failed.")
        await self._runtime.app(self._scope, asgi.replaying(raw, self._receive), self._send)
        return FAILED

    def _unavailable(self, reason: str, message: str) -> RefusalError:
        return RefusalError(503, reason, message, retry_after_seconds=self._config.retry_after_seconds)

    async def _refuse(self, refusal: RefusalError) -> None:
        self._runtime.metrics.refusals.labels(self._config.tier, refusal.reason).inc()
        headers = {"connection": "close"} if refusal.status == 413 else {}
        if refusal.retry_after_seconds is not None:
            headers["retry-after"] = str(refusal.retry_after_seconds)
        await asgi.answer(self._send, refusal.status, error_body(self._api, refusal), headers)

    def _finish(self, outcome: str) -> None:
        try:
            usage = None
            if self._response is not None and outcome == COMPLETED:
                usage = self._response.close(self._config.tier, self._scopes)
            effort = self._plan.budget.effort.name if self._plan else ""
            self._runtime.metrics.requests.labels(self._api.value, self._config.tier, effort, outcome).inc()
            if self._ticket is not None:
                self._ticket.finish(_OUTCOMES[outcome], usage.output if usage else None)
        except Exception:  # noqa: BLE001 - the response has been sent
            self._runtime.fault("finish")
            if self._ticket is not None:
                self._ticket.finish(Outcome.FAILED)  # does nothing where it is finished


def _parse(raw: bytes) -> dict[str, Any] | None:
    """The body, where it is a JSON object; read as vLLM's framework reads it."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None
