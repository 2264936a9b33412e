"""What a rollout changes, in words."""

from __future__ import annotations

from typing import Any

import pytest

from reasoningpool.api.spec_engine import ChatTemplate
from reasoningpool.api.spec_model import SecretKeyRef
from reasoningpool.resolution.types import EffectiveTier
from reasoningpool.rollout import describe_change, settle, waiting_change
from reasoningpool.sizing.types import SizingPlan
from unit.render import builders as b
from unit.rollout.test_revision import PLAN_CHANGES, RUN_CHANGES, as_live


def described(tier: EffectiveTier, plan: SizingPlan | None = None, *, before: EffectiveTier | None = None) -> str:
    old = as_live(b.render(before or b.tier()))
    return describe_change(old["spec"]["template"], b.render(tier, plan)["spec"]["template"])


def engine(**override: Any) -> EffectiveTier:
    return b.tier(overrides={"containers": [{"name": "engine", **override}]})


@pytest.mark.parametrize(
    ("tier", "plan", "words"),
    [
        (b.tier(), b.sizing_plan(max_num_seqs=8), "argument --max-num-seqs 64 -> 8"),
        (
            b.tier(engine=b.engine(image="vllm/vllm-openai:v0.34.0")),
            None,
            "image vllm/vllm-openai:v0.33.0 -> vllm/vllm-openai:v0.34.0",
        ),
        (b.tier(engine=b.engine(enforce_eager=True)), None, "argument --enforce-eager added"),
        (b.tier(model=b.model(tool_call_parser=None)), None, "argument --tool-call-parser removed"),
        (b.tier(model=b.model(id="Qwen/Qwen3-14B")), None, "model Qwen/Qwen3-8B -> Qwen/Qwen3-14B"),
        (b.tier(engine=b.engine(extra_args=("--seed", "1"))), None, "argument --seed 1 added"),
        (engine(resources={"limits": {"memory": "63Gi"}}), None, "memory limit 18Gi -> 64Gi"),
        (b.tier(overrides={"priorityClassName": "high"}), None, "priority class added"),
        (b.tier(overrides={"nodeSelector": {"zone": "a"}}), None, "node selector changed"),
        (b.tier(overrides={"labels": {"team": "x"}}), None, "label team added"),
        (b.tier(overrides={"containers": [{"name": "helper", "image": "h"}]}), None, "container helper added"),
        (b.tier(overrides={"sharedMemory": "3Gi"}), None, "volume shm changed"),
        (b.tier(), b.sizing_plan(termination_grace_period_seconds=300), "grace period 179 -> 300"),
    ],
)
def test_the_difference_is_named(tier: EffectiveTier, plan: SizingPlan | None, words: str) -> None:
    assert words in described(tier, plan)


@pytest.mark.parametrize("tier", RUN_CHANGES.values(), ids=RUN_CHANGES)
def test_every_change_of_what_runs_has_words_of_its_own(tier: EffectiveTier) -> None:
    assert described(tier) != "details of the pod"
    assert described(b.tier(), before=tier) != "details of the pod"


@pytest.mark.parametrize("plan", PLAN_CHANGES.values(), ids=PLAN_CHANGES)
def test_every_result_that_rolls_has_words_of_its_own(plan: SizingPlan) -> None:
    assert described(b.tier(), plan) != "details of the pod"


def test_values_of_variables_are_not_shown() -> None:
    tier = engine(env=[{"name": "PASSWORD", "value": "hunter2"}])
    assert "variable PASSWORD added" in described(tier)
    assert "hunter2" not in described(tier) + described(b.tier(), before=tier)


def test_secrets_are_not_shown() -> None:
    tier = b.tier(engine=b.engine(api_key_secret_ref=SecretKeyRef(name="vault", key="k")))
    assert described(tier) == "variable VLLM_API_KEY added"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--flag-of-a-plugin=hunter2",),
        ("--flag-of-a-plugin", "hunter2"),
        ("-xhunter2",),
        ("--otlp-traces-endpoint=http://me:hunter2@host",),
        ("--kv-transfer-config", '{"kv_connector_extra_config": {"key": "hunter2"}}'),
        ("--kv-transfer-config.kv_connector_extra_config.key", "hunter2"),
    ],
)
def test_values_of_arguments_that_may_be_secret_are_not_shown(arguments: tuple[str, ...]) -> None:
    tier = b.tier(engine=b.engine(extra_args=arguments))
    other = b.tier(engine=b.engine(extra_args=tuple(text.replace("hunter2", "other") for text in arguments)))
    added, removed, changed = described(tier), described(b.tier(), before=tier), described(tier, before=other)
    for text, word in ((added, "added"), (removed, "removed"), (changed, "changed")):
        assert "hunter2" not in text
        assert "other" not in text
        assert text.startswith("argument -")
        assert text.endswith(word)


def test_a_chat_template_is_not_spelt_out() -> None:
    text = described(b.tier(engine=b.engine(chat_template=ChatTemplate(inline="{{ secret_sauce }}"))))
    assert "secret_sauce" not in text
    assert "chat-template" in text


def test_server_defaults_are_not_a_change() -> None:
    tier = engine(env=[{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}])
    old = as_live(b.render(tier))
    new = b.render(tier, b.sizing_plan(max_num_seqs=8))["spec"]["template"]
    assert describe_change(old["spec"]["template"], new) == "argument --max-num-seqs 64 -> 8"


def test_long_lists_and_long_values_are_cut() -> None:
    free = ("--seed", "--stream-interval", "--response-role", "--log-level", "--max-log-len", "--logprobs-mode")
    tier = b.tier(engine=b.engine(extra_args=tuple(f"{flag}={'x' * 200}" for flag in free)))
    text = described(tier)
    assert text.endswith("; and 1 more")
    assert len(text) < 700


def test_what_waits_for_the_user_is_named() -> None:
    live = as_live(b.render(b.tier(), intent="a"))
    rendered = b.render(b.tier(), b.sizing_plan(max_num_seqs=60), intent="a")
    assert waiting_change(settle(live, rendered), rendered) == "argument --max-num-seqs 64 -> 60"
    changed = b.render(b.tier(), b.sizing_plan(max_num_seqs=60), intent="b")
    assert waiting_change(settle(live, changed), changed) is None
    same = b.render(b.tier(), intent="a")
    assert waiting_change(settle(live, same), same) is None
