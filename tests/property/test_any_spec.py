"""Whatever the CRD's schema lets through gets a plan, and the plan says whether the spec is valid."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from reasoningpool.planning.plan import PlanningSettings, plan
from reasoningpool.planning.snapshot import Snapshot
from reasoningpool.resolution.resolve import ResolutionSettings
from support.pools import pool, tier
from support.specs import JSON_TEXTS, NESTED, config_texts, pools
from support.world import NOW, World, condition

SETTINGS = PlanningSettings(resolution=ResolutionSettings(allowed_service_accounts=frozenset({"engine"})))


def judged(body: dict[str, Any]) -> str:
    """Status of `Accepted`; fails when there is none, or the plan could not be sent."""
    found = plan(Snapshot(pool=body), now=NOW, settings=SETTINGS)
    assert found.status is not None
    json.dumps([found.status, [apply.manifest for apply in found.applies]], ensure_ascii=False).encode()
    for note in found.events:
        note.message.encode()
    return condition(found.status, "Accepted")["status"]


@settings(suppress_health_check=list(HealthCheck))
@given(pools())
def test_every_object_of_the_schema_is_accepted_or_refused_in_words(body) -> None:
    assert judged(body) in {"True", "False"}


@settings(max_examples=settings().max_examples // 4, suppress_health_check=list(HealthCheck))
@given(pools(), pools())
def test_every_change_of_a_running_pool_is_planned(before, after) -> None:
    world = World(before, settings=SETTINGS)
    world.step()
    for name in [name for kind, name in world.children if kind == "StatefulSet"]:
        world.roll(name, ready=False)
    world.step()
    world.edit(after)
    found = world.step()
    status = world.pool["status"] if found.status is None else found.status
    assert condition(status, "Accepted")["status"] in {"True", "False"}


@given(config_texts())
def test_every_text_of_a_config_json_is_accepted_or_refused_in_words(text) -> None:
    assert judged(World(pool(model={"id": "example/x", "configJSON": text})).pool) in {"True", "False"}


@pytest.mark.parametrize("text", JSON_TEXTS, ids=lambda text: text[:20])
@pytest.mark.parametrize("flag", ["--compilation-config", "--hf-overrides", "--speculative-config", "-O"])
def test_json_of_an_extra_argument_is_judged_however_deep_it_is(flag, text) -> None:
    for arguments in ([flag, text], [f"{flag}={text}"]):
        assert judged(World(pool(engine={"extraArgs": arguments})).pool) in {"True", "False"}


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"text_config":', '{"quantization_config":', '[{"a":'])
def test_config_json_is_judged_however_deep_it_is(opening) -> None:
    for length in (500, 900, 980, 2_000, NESTED):
        closing = {"[": "]", "{": "}"}
        whole = opening * (length // len(opening))
        ends = "".join(closing[mark] for mark in reversed(whole) if mark in closing)
        for text in (whole, whole + "1" + ends):
            body = World(pool(model={"id": "example/x", "configJSON": text}, tiers=[tier()])).pool
            assert judged(body) == "False"
