"""Which tier a request reaches, and what it is told when there is none."""

from __future__ import annotations

import json

import httpx
import pytest

from gateway.conftest import Replica, Running

Pair = tuple[Running, Replica, Replica]
CHAT = "/v1/chat/completions"


def body(model: str | None = None, text: str = "hello") -> dict[str, object]:
    found: dict[str, object] = {"messages": [{"role": "user", "content": text}]}
    return found if model is None else {"model": model} | found


async def reached(running: Running, **request: object) -> str:
    answer = await running.client.post(CHAT, **request)  # type: ignore[arg-type]
    assert answer.status_code == httpx.codes.OK, answer.text
    return str(answer.json()["replica"])


@pytest.mark.parametrize("wanted", ["reasoning", "chat"])
async def test_the_model_decides_the_tier(two_tiers: Pair, wanted: str) -> None:
    assert await reached(two_tiers[0], json=body(f"math-{wanted}")) == wanted


async def test_the_model_is_found_whatever_the_content_type_s_parameters(two_tiers: Pair) -> None:
    content = json.dumps(body("math-chat"))
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert await reached(two_tiers[0], content=content, headers=headers) == "chat"


async def test_a_named_tier_wins_over_the_model(two_tiers: Pair) -> None:
    headers = {"x-reasoningpool-tier": "chat"}
    assert await reached(two_tiers[0], json=body("math-reasoning"), headers=headers) == "chat"


async def test_a_hostname_decides_the_tier(two_tiers: Pair) -> None:
    headers = {"host": "chat.example.com"}
    assert await reached(two_tiers[0], json=body("math-reasoning"), headers=headers) == "chat"


async def test_a_request_without_a_model_reaches_the_first_tier(two_tiers: Pair) -> None:
    assert await reached(two_tiers[0], json=body()) == "reasoning"


async def test_a_prompt_of_three_megabytes_passes_whole(two_tiers: Pair) -> None:
    running, _, chat = two_tiers
    sent = json.dumps(body("math-chat", "a" * (3 << 20))).encode()
    assert await reached(running, content=sent, headers={"content-type": "application/json"}) == "chat"
    assert chat.requests[0][2] == sent


@pytest.mark.parametrize(
    ("headers", "model"), [({}, "other"), ({"x-reasoningpool-tier": "other"}, "math-chat")], ids=["model", "tier"]
)
async def test_an_unknown_destination_is_an_openai_error_that_names_the_known_ones(
    two_tiers: Pair, headers: dict[str, str], model: str
) -> None:
    answer = await two_tiers[0].client.post(CHAT, json=body(model), headers=headers)
    assert answer.status_code == httpx.codes.NOT_FOUND
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == (404, "NotFoundError")
    assert "reasoning" in error["message"]
    assert "chat" in error["message"]


async def test_a_body_above_the_limit_is_refused_in_json(two_tiers: Pair) -> None:
    answer = await two_tiers[0].client.post(CHAT, json=body("math-chat", "a" * (9 << 20)))
    assert answer.status_code == httpx.codes.REQUEST_ENTITY_TOO_LARGE
    assert "too large" in answer.json()["error"]["message"]


async def test_all_models_are_listed(two_tiers: Pair) -> None:
    models = (await two_tiers[0].client.get("/v1/models")).json()
    assert [entry["id"] for entry in models["data"]] == ["math-reasoning", "math-chat"]


async def test_http_2_without_tls_is_served(two_tiers: Pair) -> None:
    async with httpx.AsyncClient(http1=False, http2=True) as client:
        answer = await client.post(f"{two_tiers[0].url}{CHAT}", json=body("math-chat"))
    assert (answer.http_version, answer.json()) == ("HTTP/2", {"replica": "chat"})


async def test_a_websocket_is_refused(two_tiers: Pair) -> None:
    headers = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "eA==",
    }
    answer = await two_tiers[0].client.get("/v1/realtime", headers=headers)
    assert answer.status_code == httpx.codes.FORBIDDEN


async def test_a_tier_without_replicas_answers_503_with_retry_after(envoy_folder) -> None:
    from gateway.conftest import free_port, gateway_of, running_envoy, tier

    async with running_envoy(gateway_of(tier("chat", free_port())), envoy_folder) as running:
        answer = await running.client.post(CHAT, json=body("math-chat"))
    assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE
    assert answer.headers["retry-after"] == "5"
    assert answer.json()["error"]["type"] == "service_unavailable"


async def test_headers_that_only_the_gateway_sets_are_taken_from_clients(two_tiers: Pair) -> None:
    running, _, chat = two_tiers
    spoofed = {
        "x-gateway-destination-endpoint": f"127.0.0.1:{running.gateway.admin_port}",
        "x-gateway-model-name": "math-reasoning",
        "x-reasoningpool-prefix": "0",
    }
    assert await reached(running, json=body("math-chat"), headers=spoofed) == "chat"
    arrived = chat.requests[0][1]
    assert not {"x-gateway-destination-endpoint", "x-gateway-model-name"} & arrived.keys()
    assert arrived["x-reasoningpool-prefix"] != "0"


async def test_the_log_tells_tier_and_effort_and_no_prompt(two_tiers: Pair) -> None:
    running, _, _ = two_tiers
    await reached(running, json=body("math-chat", "a secret"), headers={"x-reasoning-effort": "high"})
    entry = await running.logged("chat")
    assert (entry["effort"], entry["model"], entry["status"]) == ("high", "math-chat", 200)
    assert "a secret" not in running.log.read_text()
