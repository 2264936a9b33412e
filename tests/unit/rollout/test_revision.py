"""Pods roll when, and only when, their user changed what they run."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import fields, replace
from typing import Any

import pytest
import yaml

from reasoningpool.api import names
from reasoningpool.api.spec import ReasoningPoolSpec
from reasoningpool.api.spec_engine import ChatTemplate
from reasoningpool.api.spec_model import (
    ClaimSource,
    ClaimTemplate,
    HuggingFaceSource,
    ModelCache,
    ModelSource,
    Quantization,
    SecretKeyRef,
)
from reasoningpool.api.spec_runtime import OverBudget
from reasoningpool.api.spec_tier import KVOffloadSpec, SpeculativeMethod, SpeculativeSpec, Workload
from reasoningpool.render.pod import probes
from reasoningpool.render.pod.environment import DIRECTORIES
from reasoningpool.resolution.types import EffectiveRuntime, EffectiveTier
from reasoningpool.rollout import pod_intent, revision_of, settle, sizing_key
from reasoningpool.rollout.revision import ANNOTATION_INTENT, run_revision
from reasoningpool.sizing.types import KVCacheDType, SizingPlan
from support.pools import pool
from unit.render import builders as b

REF = SecretKeyRef(name="s", key="k")
HUB = ModelSource(hugging_face=HuggingFaceSource(token_secret_ref=REF))
CLAIM = ModelSource(persistent_volume_claim=ClaimSource(claim_name="w"))
MTP = SpeculativeSpec(method=SpeculativeMethod.MTP, tokens=1)


def engine(**changes: Any) -> EffectiveTier:
    return b.tier(engine=b.engine(**changes))


def model(**changes: Any) -> EffectiveTier:
    return b.tier(model=b.model(**changes))


def overrides(**changes: Any) -> EffectiveTier:
    return b.tier(overrides=changes)


# Every change a user can make to what the pods run.
RUNTIME = EffectiveRuntime(
    image="registry.example/runtime:1",
    over_budget=OverBudget.CLAMP,
    show_thinking=True,
    tenant_header=None,
    default_effort="high",
)
RUN_CHANGES: dict[str, EffectiveTier] = {
    "request runtime": b.tier(runtime=RUNTIME),
    "version of the request runtime": b.tier(runtime=dataclasses.replace(RUNTIME, image="registry.example/runtime:2")),
    "model": model(id="Qwen/Qwen3-14B"),
    "revision": model(revision="abc"),
    "served name": model(served_name="other"),
    "weights": model(source=CLAIM),
    "token": model(source=HUB),
    "shared cache": model(cache=ModelCache(claim_name="c")),
    "own cache": model(cache=ModelCache(claim_template=ClaimTemplate(size="1Gi"))),
    "quantization": model(quantization=Quantization.FP8),
    "reasoning parser": model(reasoning_parser="deepseek_r1"),
    "no tool parser": model(tool_call_parser=None),
    "image": engine(image="vllm/vllm-openai:v0.33.1"),
    "pull secrets": engine(image_pull_secrets=("a",)),
    "KV type": engine(kv_cache_dtype=KVCacheDType.BF16),
    "KV pool": engine(kv_cache_memory_bytes=2**30),
    "utilization": engine(memory_utilization_percent=90),
    "eager": engine(enforce_eager=True),
    "no prefix caching": engine(prefix_caching=False),
    "remote code": engine(trust_remote_code=True),
    "chat template": engine(chat_template=ChatTemplate(inline="{{ x }}")),
    "API key": engine(api_key_secret_ref=REF),
    "startup timeout": engine(startup_timeout_seconds=3600),
    "extra argument": engine(extra_args=("--seed=1",)),
    "devices": b.tier(accelerator=b.accelerator(per_replica=2)),
    "nodes": b.tier(accelerator=b.accelerator(node_labels={"gpu": ("A", "B")})),
    "tolerations": b.tier(accelerator=b.accelerator(tolerations=())),
    "no device": b.tier(accelerator=b.cpu_accelerator()),
    "workload": b.tier(workload=Workload.CHAT),
    "speculative": b.tier(speculative=MTP),
    "speculative tokens": b.tier(speculative=SpeculativeSpec(method=SpeculativeMethod.MTP, tokens=2)),
    "offload": b.tier(kv_offload=KVOffloadSpec(cpu_memory="8Gi")),
    "block size": b.tier(block_size=32),
    "label": overrides(labels={"sidecar.istio.io/inject": "false"}),
    "annotation": overrides(annotations={"restarted": "now"}),
    "priority": overrides(priorityClassName="high"),
    "variable": overrides(containers=[{"name": "engine", "env": [{"name": "A", "value": "1"}]}]),
    "variable's value": overrides(containers=[{"name": "engine", "env": [{"name": "A", "value": "2"}]}]),
    "sidecar": overrides(containers=[{"name": "helper", "image": "h:1"}]),
    "memory": overrides(containers=[{"name": "engine", "resources": {"limits": {"memory": "64Gi"}}}]),
    "shared memory": overrides(sharedMemory="3Gi"),
    "probe": overrides(livenessProbe={"periodSeconds": 20}),
    "user": overrides(securityContext={"runAsUser": 5}),
}
PLAN_CHANGES: dict[str, SizingPlan] = {
    "sequences": b.sizing_plan(max_num_seqs=8),
    "context": b.sizing_plan(max_model_len=1024),
    "batch": b.sizing_plan(max_num_batched_tokens=2048),
    "drain": b.sizing_plan(shutdown_timeout_seconds=600, termination_grace_period_seconds=625),
    "preStop": b.sizing_plan(pre_stop_seconds=20, termination_grace_period_seconds=189),
    "start-up": b.sizing_plan(startup_budget_seconds=1200),
}
# Changes that leave the pods as they are.
IDLE_CHANGES: dict[str, EffectiveTier] = {
    "place in the list of tiers": b.tier(path="spec.tiers[7]"),
    "max unavailable": b.tier(max_unavailable=3),
    "budgets with the same result": b.tier(sizing_input=b.sizing_input(shared_prefix_tokens=100)),
    "empty overrides": overrides(),
    "what the catalog knows": model(thinking_budget_enforceable=False),
    "device memory as measured": b.tier(accelerator=b.accelerator(facts=b.facts(memory_bytes=85_000_000_000))),
}


def template(tier: EffectiveTier, plan: SizingPlan | None = None) -> dict[str, Any]:
    """The pod template without its revision."""
    found = copy.deepcopy(b.render(tier, plan)["spec"]["template"])
    del found["metadata"]["annotations"][names.ANNOTATION_REVISION]
    return found


@pytest.mark.parametrize("tier", RUN_CHANGES.values(), ids=RUN_CHANGES)
def test_any_change_of_what_runs_changes_template_and_revision(tier: EffectiveTier) -> None:
    assert template(tier) != template(b.tier())
    assert run_revision(tier, b.sizing_plan()) != run_revision(b.tier(), b.sizing_plan())


@pytest.mark.parametrize("plan", PLAN_CHANGES.values(), ids=PLAN_CHANGES)
def test_any_result_that_reaches_the_pod_changes_template_and_revision(plan: SizingPlan) -> None:
    assert template(b.tier(), plan) != template(b.tier())
    assert run_revision(b.tier(), plan) != run_revision(b.tier(), b.sizing_plan())


@pytest.mark.parametrize("tier", IDLE_CHANGES.values(), ids=IDLE_CHANGES)
def test_what_does_not_reach_the_pod_changes_neither(tier: EffectiveTier) -> None:
    assert template(tier) == template(b.tier())
    assert run_revision(tier, b.sizing_plan()) == run_revision(b.tier(), b.sizing_plan())


def test_revisions_of_different_changes_differ() -> None:
    revisions = [run_revision(tier, b.sizing_plan()) for tier in RUN_CHANGES.values()]
    revisions += [run_revision(b.tier(), plan) for plan in PLAN_CHANGES.values()]
    assert len(set(revisions)) == len(revisions)


def test_every_field_of_a_tier_is_tried() -> None:
    """A new field must be put into one of the tables above."""
    tried = {
        field.name
        for changed in (*RUN_CHANGES.values(), *IDLE_CHANGES.values())
        for field in fields(EffectiveTier)
        if getattr(changed, field.name) != getattr(b.tier(), field.name)
    }
    assert tried == {field.name for field in fields(EffectiveTier)} - {"name"}


def test_figures_that_reach_no_pod_change_no_revision() -> None:
    plan = b.sizing_plan(kv_pool_bytes=1, mean_resident_tokens=1, usable_kv_tokens=1, warnings=("x",))
    assert run_revision(b.tier(), plan) == run_revision(b.tier(), b.sizing_plan())


def test_a_quantity_written_differently_is_the_same() -> None:
    one = overrides(
        sharedMemory="1Gi", containers=[{"name": "engine", "resources": {"limits": {"memory": "2Gi", "cpu": 1}}}]
    )
    other = overrides(
        sharedMemory="1024Mi",
        containers=[{"name": "engine", "resources": {"limits": {"memory": "2048Mi", "cpu": "1000m"}}}],
    )
    assert run_revision(one, b.sizing_plan()) == run_revision(other, b.sizing_plan())
    assert template(one) == template(other)


def test_claims_that_are_made_later_restart_nothing() -> None:
    small = model(cache=ModelCache(claim_template=ClaimTemplate(size="1Gi")))
    large = model(cache=ModelCache(claim_template=ClaimTemplate(size="2Gi", storage_class_name="fast", retain=True)))
    assert template(small) == template(large)
    assert run_revision(small, b.sizing_plan()) == run_revision(large, b.sizing_plan())


# --- settling against what is live -------------------------------------------------------------------------


def as_live(manifest: dict[str, Any]) -> dict[str, Any]:
    """The object as the API server would answer, with some of its defaults."""
    live = copy.deepcopy(manifest)
    live["metadata"] |= {"uid": "u", "resourceVersion": "1", "generation": 1}
    live["spec"]["replicas"] = 2
    live["spec"]["template"]["metadata"]["creationTimestamp"] = None
    for container in live["spec"]["template"]["spec"]["containers"]:
        for variable in container.get("env", ()):
            if "fieldRef" in variable.get("valueFrom", {}):
                variable["valueFrom"]["fieldRef"]["apiVersion"] = "v1"
    for claim in live["spec"].get("volumeClaimTemplates", ()):
        claim["status"] = {"phase": "Pending"}
    return live


@pytest.fixture
def upgraded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer operator with other defaults: another probe period, another variable."""
    monkeypatch.setattr(probes, "_STARTUP_PERIOD", 7)
    monkeypatch.setitem(DIRECTORIES, "NEW_CACHE_DIR", "/cache/new")


def rolls(live: dict[str, Any], settled: dict[str, Any]) -> bool:
    """Whether the StatefulSet controller would replace pods."""
    was = copy.deepcopy(live["spec"]["template"])
    was["metadata"].pop("creationTimestamp")
    return bool(settled["spec"]["template"] != was)


def test_a_new_tier_is_applied_as_rendered() -> None:
    rendered = b.render(b.tier())
    assert settle(None, rendered) is rendered


def test_settling_again_changes_nothing() -> None:
    live = as_live(b.render(b.tier(), intent="a"))
    assert settle(live, b.render(b.tier(), intent="a")) == b.render(b.tier(), intent="a")


def test_a_users_change_rolls() -> None:
    live = as_live(b.render(b.tier(), intent="a"))
    rendered = b.render(engine(image="other:1"), intent="b")
    assert settle(live, rendered) == rendered


def test_an_upgrade_of_the_operator_rolls_nothing(request: pytest.FixtureRequest) -> None:
    live = as_live(b.render(b.tier(), intent="a"))
    request.getfixturevalue("upgraded")
    rendered = b.render(b.tier(), intent="a")
    settled = settle(live, rendered)
    assert rendered["spec"]["template"] != live["spec"]["template"]
    assert not rolls(live, settled)
    assert settle(as_live(settled), rendered) == settled


@pytest.mark.parametrize(
    "tier",
    [engine(image="vllm/vllm-openai:v0.34.0"), engine(memory_utilization_percent=90)],
    ids=["default image", "default utilization"],
)
def test_a_new_default_of_what_runs_waits_for_the_user(tier: EffectiveTier) -> None:
    live = as_live(b.render(b.tier(), intent="a"))
    assert not rolls(live, settle(live, b.render(tier, intent="a")))
    assert rolls(live, settle(live, b.render(tier, intent="b")))


def test_other_figures_of_the_sizing_wait_for_the_user() -> None:
    live = as_live(b.render(b.tier(), intent="a"))
    plan = b.sizing_plan(max_num_seqs=63)
    assert not rolls(live, settle(live, b.render(b.tier(), plan, intent="a")))
    assert rolls(live, settle(live, b.render(b.tier(), plan, intent="b")))


def test_an_edit_without_effect_does_not_take_new_defaults_along(request: pytest.FixtureRequest) -> None:
    live = as_live(b.render(b.tier(), intent="a"))
    request.getfixturevalue("upgraded")
    settled = settle(live, b.render(b.tier(), intent="b"))
    assert not rolls(live, settled)
    assert settled["metadata"]["annotations"][ANNOTATION_INTENT] == "b"


def test_a_users_change_takes_new_defaults_along(request: pytest.FixtureRequest) -> None:
    live = as_live(b.render(b.tier(), intent="a"))
    request.getfixturevalue("upgraded")
    rendered = b.render(engine(image="other:1"), intent="b")
    assert settle(live, rendered) == rendered


def test_a_downgrade_sends_what_was_rendered_before(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = b.render(b.tier(), intent="a")
    request.getfixturevalue("upgraded")
    settled = settle(as_live(before), b.render(b.tier(), intent="a"))
    monkeypatch.undo()
    assert settle(as_live(settled), before) == before


def test_a_hand_edited_template_is_restored() -> None:
    rendered = b.render(b.tier(), intent="a")
    live = as_live(rendered)
    live["spec"]["template"]["spec"]["containers"][0]["image"] = "hacked:1"
    assert settle(live, rendered) == rendered


def test_an_edit_that_renders_to_the_same_template_rolls_nothing() -> None:
    live = as_live(b.render(b.tier(), intent="a"))
    ignored = b.tier(overrides={"labels": {names.LABEL_POOL: "mine"}})
    assert not rolls(live, settle(live, b.render(ignored, intent="b")))


def test_without_an_intent_the_revision_decides() -> None:
    live = as_live(b.render(b.tier()))
    assert rolls(live, settle(live, b.render(engine(image="other:1"))))


def test_a_stateful_set_that_was_not_rendered_here_is_replaced() -> None:
    live = as_live(b.render(b.tier()))
    del live["spec"]["template"]["metadata"]["annotations"]
    rendered = b.render(b.tier())
    assert settle(live, rendered) is rendered


def test_the_rest_of_the_stateful_set_follows_at_once(request: pytest.FixtureRequest) -> None:
    live = as_live(b.render(b.tier(), intent="a"))
    request.getfixturevalue("upgraded")
    settled = settle(live, b.render(b.tier(max_unavailable=2), intent="a"))
    assert settled["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == 2
    assert not rolls(live, settled)


def test_settling_does_not_touch_its_arguments(request: pytest.FixtureRequest) -> None:
    live = as_live(b.render(b.tier(), intent="a"))
    request.getfixturevalue("upgraded")
    rendered = b.render(b.tier(), intent="a")
    before = copy.deepcopy((live, rendered))
    settle(live, rendered)["spec"]["template"]["spec"]["containers"].clear()
    assert (live, rendered) == before


CACHED = model(cache=ModelCache(claim_template=ClaimTemplate(size="1Gi")))
LARGER = model(cache=ModelCache(claim_template=ClaimTemplate(size="2Gi")))


def claims(manifest: dict[str, Any]) -> list[Any]:
    return [c["spec"]["resources"]["requests"]["storage"] for c in manifest["spec"].get("volumeClaimTemplates", ())]


def test_a_larger_claim_reaches_the_stateful_set_without_a_roll(request: pytest.FixtureRequest) -> None:
    live = as_live(b.render(CACHED, intent="a"))
    assert claims(settle(live, b.render(LARGER, intent="b"))) == ["2Gi"]
    request.getfixturevalue("upgraded")
    settled = settle(live, b.render(LARGER, intent="b"))
    assert claims(settled) == ["2Gi"]
    assert not rolls(live, settled)


def test_an_upgrade_leaves_claim_templates_as_they_are(request: pytest.FixtureRequest) -> None:
    live = as_live(b.render(CACHED, intent="a"))
    request.getfixturevalue("upgraded")
    settled = settle(live, b.render(LARGER, intent="a"))
    assert claims(settled) == ["1Gi"]
    assert "status" not in settled["spec"]["volumeClaimTemplates"][0]
    assert claims(settle(as_live(b.render(b.tier(), intent="a")), b.render(LARGER, intent="a"))) == []


# --- the intent --------------------------------------------------------------------------------------------

SPEC = """
model: {id: Qwen/Qwen3-8B}
accelerator: {product: H100-SXM-80GB}
tiers:
- name: reasoning
  workload: Reasoning
  promptTokens: 8192
  efforts: [{name: high, thinkingTokens: 4096, answerTokens: 1024}]
- name: chat
  workload: Chat
  promptTokens: 4096
  efforts: [{name: none, thinkingTokens: 0, answerTokens: 1024}]
"""


def intent(*corrections: str, tier: dict[str, Any] | None = None, **changes: Any) -> str:
    spec = yaml.safe_load(SPEC) | changes
    spec["tiers"][0] |= tier or {}
    parsed = ReasoningPoolSpec.model_validate(spec)
    return pod_intent(parsed, parsed.tiers[0], *corrections)


@pytest.mark.parametrize(
    "changes",
    [
        {"tier": {"replicas": 5}},
        {"tier": {"scaling": {"minReplicas": 1, "maxReplicas": 3}}},
        {"tier": {"rollout": {"maxUnavailable": 2}}},
        {"monitoring": {"rules": True}},
        {"gateway": {"mode": "None"}},
        {"suspend": False},
        {"engine": {}},
    ],
    ids=str,
)
def test_fields_unrelated_to_pods_do_not_change_the_intent(changes: dict[str, Any]) -> None:
    assert intent(**changes) == intent()


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"id": "Qwen/Qwen3-14B"}},
        {"accelerator": {"product": "H100-SXM-80GB", "perReplica": 2}},
        {"engine": {"kvCacheDType": "BF16"}},
        {"tier": {"promptTokens": 4096}},
        {"tier": {"podOverrides": {"annotations": {"restarted": "now"}}}},
        {"tier": {"engine": {"enforceEager": True}}},
    ],
    ids=str,
)
def test_what_is_about_pods_is_intent(changes: dict[str, Any]) -> None:
    assert intent(**changes) != intent()


def test_another_tiers_spec_is_not_this_tiers_intent() -> None:
    spec = yaml.safe_load(SPEC)
    before = ReasoningPoolSpec.model_validate(spec)
    spec["tiers"][1]["promptTokens"] = 1
    after = ReasoningPoolSpec.model_validate(spec)
    assert pod_intent(before, before.tiers[0]) == pod_intent(after, after.tiers[0])


def test_a_correction_is_intent() -> None:
    assert intent("usableKVTokens=1000") != intent()


def test_revision_of_reads_the_pods_annotation() -> None:
    assert revision_of(b.render(b.tier())) == run_revision(b.tier(), b.sizing_plan())
    assert revision_of({"spec": {"template": {}}}) == ""


def test_tier_name_does_not_change_the_revision() -> None:
    assert run_revision(replace(b.tier(), name="other"), b.sizing_plan()) == run_revision(b.tier(), b.sizing_plan())


def key(spec: dict[str, Any], tier: dict[str, Any] | None = None) -> str:
    body = {**_spec(), **spec}
    body["tiers"] = [{**body["tiers"][0], **(tier or {})}]
    parsed = ReasoningPoolSpec.model_validate(body)
    return sizing_key(parsed, parsed.tiers[0])


def _spec() -> dict[str, Any]:
    spec: dict[str, Any] = copy.deepcopy(pool()["spec"])
    return spec


@pytest.mark.parametrize(
    ("spec", "tier"),
    [
        ({"model": {"id": "Qwen/Qwen3-32B"}}, {}),
        ({"model": {"id": "Qwen/Qwen3-32B-FP8", "revision": "abc"}}, {}),
        ({"accelerator": {"product": "H100-SXM-80GB", "perReplica": 2}}, {}),
        ({"engine": {"image": "example.org/vllm:1"}}, {}),
        ({"engine": {"version": "0.33.0"}}, {}),
        ({"engine": {"memoryUtilizationPercent": 80}}, {}),
        ({"engine": {"extraArgs": ["--max-log-len=5"]}}, {}),
        ({}, {"promptTokens": 5}),
        ({}, {"maxNumSeqs": 5}),
        ({}, {"concurrency": {"policy": "WorstCase"}}),
        ({}, {"engine": {"kvCacheDType": "BF16"}}),
        ({}, {"podOverrides": {"containers": [{"name": "engine", "env": [{"name": "A", "value": "b"}]}]}}),
    ],
)
def test_what_decides_the_kv_pool_or_its_use_voids_a_correction(spec: dict[str, Any], tier: dict[str, Any]) -> None:
    assert key(spec, tier) != key({})


@pytest.mark.parametrize(
    ("spec", "tier"),
    [
        ({"model": {"id": "Qwen/Qwen3-32B-FP8", "servedName": "other"}}, {}),
        ({"engine": {"imagePullSecrets": ["a"]}}, {}),
        ({"engine": {"startupTimeoutSeconds": 900}}, {"engine": {"imagePullPolicy": "Always"}}),
        ({"accelerator": {"product": "H100-SXM-80GB", "tolerations": [{"key": "a"}]}}, {}),
        ({"gateway": {"mode": "None"}, "suspend": True}, {"replicas": 7}),
        ({}, {"podOverrides": {"labels": {"a": "b"}, "preStopSeconds": 3}}),
        ({}, {"rollout": {"maxUnavailable": 2}}),
    ],
)
def test_what_does_not_decide_the_kv_pool_keeps_a_correction(spec: dict[str, Any], tier: dict[str, Any]) -> None:
    assert key(spec, tier) == key({})
