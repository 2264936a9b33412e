import asyncio

import pytest
from fake_vllm import FakeVllm

from reasoningpool_runtime.asgi import Receive, Scope, Send
from reasoningpool_runtime.inner import InnerCall, InnerCallError, healthy

DEADLINE_S = 10.0
OUTER: Scope = {
    "root_path": "/llm",
    "headers": [
        (b"Authorization", b"Bearer k"),
        (b"x-request-id", b"7"),
        (b"content-length", b"99"),
        (b"cookie", b"c"),
    ],
}
BODY = {"stream": True, "cache_salt": "tenant"}


async def test_a_call_streams_its_response() -> None:
    vllm = FakeVllm()
    async with InnerCall(vllm, OUTER, "/v1/chat/completions", BODY) as call:
        assert call.status == 200
        body = b"".join([chunk async for chunk in call.chunks()])
    assert body.endswith(b"data: [DONE]\n\n")
    assert vllm.body == BODY
    assert vllm.aborted == 0


async def test_leaving_early_hangs_up() -> None:
    vllm = FakeVllm(hold=asyncio.Event())
    async with InnerCall(vllm, OUTER, "/v1/chat/completions", BODY) as call:
        async for _ in call.chunks():
            break
        assert vllm.running == 1
    assert (vllm.running, vllm.aborted) == (0, 1)


async def test_a_cancelled_caller_hangs_up() -> None:
    vllm = FakeVllm(hold=asyncio.Event())
    entered = asyncio.Event()

    async def caller() -> None:
        async with InnerCall(vllm, OUTER, "/v1/chat/completions", {"stream": False}):
            entered.set()

    task = asyncio.create_task(caller())
    while not vllm.running:  # noqa: ASYNC110 - the fake has no event for it
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (vllm.running, vllm.aborted, entered.is_set()) == (0, 1, False)


async def test_an_unread_response_of_any_length_can_be_left() -> None:
    vllm = FakeVllm(answer=["word "] * 1000)
    async with asyncio.timeout(DEADLINE_S), InnerCall(vllm, OUTER, "/v1/chat/completions", BODY):
        pass
    assert vllm.running == 0


async def test_the_outer_request_lends_its_key_and_id_and_nothing_else() -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)
        await FakeVllm()(scope, receive, send)

    async with InnerCall(app, OUTER, "/v1/completions", {}):
        pass
    names = {name for name, _ in seen[0]["headers"]}
    assert {b"Authorization", b"x-request-id"} < names
    assert b"cookie" not in names
    assert seen[0]["path"] == "/llm/v1/completions"


@pytest.mark.parametrize("failure", [ValueError("broken"), asyncio.CancelledError()])
async def test_a_failed_application_is_an_error_of_the_call(failure: BaseException) -> None:
    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise failure

    with pytest.raises(InnerCallError):
        async with InnerCall(app, OUTER, "/v1/completions", {}):
            pass


async def test_a_response_that_breaks_off_is_an_error() -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError("broken")

    with pytest.raises(InnerCallError):
        async with InnerCall(app, OUTER, "/v1/completions", {}) as call:
            await call.json()


async def test_health_is_vllms() -> None:
    assert await healthy(FakeVllm(), OUTER)
    assert not await healthy(FakeVllm(healthy=False), OUTER)
