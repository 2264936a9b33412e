"""The request runtime in the pods of a tier."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from reasoningpool.api.findings import Findings
from reasoningpool.api.pod_overrides import PodOverrides
from reasoningpool.api.spec_runtime import OverBudget, RuntimeSpec
from reasoningpool.api.spec_tier import TierSpec
from reasoningpool.render import render_tier
from reasoningpool.resolution.runtime import resolve_runtime
from reasoningpool.resolution.types import EffectiveRuntime
from reasoningpool.rollout.revision import run_revision
from reasoningpool.vllm import runtime_contract
from unit.render import builders as b

IMAGE = "registry.example/runtime:1"


def runtime(**changes: Any) -> EffectiveRuntime:
    values: dict[str, Any] = {
        "image": IMAGE,
        "over_budget": OverBudget.CLAMP,
        "show_thinking": True,
        "tenant_header": None,
        "default_effort": "high",
    }
    return EffectiveRuntime(**(values | changes))


def rendered(**changes: Any) -> dict[str, dict[str, Any]]:
    tier = b.tier(**({"runtime": runtime()} | changes))
    return {manifest["kind"]: manifest for manifest in render_tier(b.pool_identity(), tier, b.sizing_plan()).manifests}


def pod_of(manifests: dict[str, dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = manifests["StatefulSet"]["spec"]["template"]["spec"]
    return spec


def spec_tier(**changes: Any) -> TierSpec:
    efforts = [{"name": name, "thinkingTokens": 1024, "answerTokens": 512} for name in ("low", "medium")]
    values = {"name": "reasoning", "workload": "Reasoning", "promptTokens": 1024, "efforts": efforts}
    return TierSpec.model_validate(values | changes)


def test_the_engine_finds_the_package_where_the_init_container_copies_it() -> None:
    pod = pod_of(rendered())
    (copy,) = pod["initContainers"]
    (engine,) = pod["containers"]
    assert copy["image"] == IMAGE
    (mount,) = copy["volumeMounts"]
    assert copy["args"] == [mount["mountPath"]]
    assert {"name": mount["name"], "emptyDir": {}} in pod["volumes"]
    assert {**mount, "readOnly": True} in engine["volumeMounts"]
    environment = {variable["name"]: variable.get("value") for variable in engine["env"]}
    assert environment["PYTHONPATH"] == mount["mountPath"]
    assert "--middleware=reasoningpool_runtime.Middleware" in engine["args"]


def test_the_configuration_is_mounted_whole_so_that_a_change_reaches_running_pods() -> None:
    manifests = rendered()
    pod = pod_of(manifests)
    (volume,) = [v for v in pod["volumes"] if v.get("configMap", {}).get("name") == "qwen-reasoning-runtime"]
    (mount,) = [m for m in pod["containers"][0]["volumeMounts"] if m["name"] == volume["name"]]
    assert "subPath" not in mount
    environment = {variable["name"]: variable.get("value") for variable in pod["containers"][0]["env"]}
    (key,) = manifests["ConfigMap"]["data"]
    assert environment["REASONINGPOOL_RUNTIME_CONFIG"] == f"{mount['mountPath']}/{key}"


def test_the_configuration_has_the_tier_s_budgets_and_is_what_the_runtime_reads() -> None:
    text = rendered(runtime=runtime(over_budget=OverBudget.REFUSE, tenant_header="x-team"))["ConfigMap"]["data"]
    config, unknown = runtime_contract.loads(text["config.json"])
    assert unknown == ()
    (effort,) = config.efforts
    assert (effort.name, effort.thinking_tokens, effort.answer_tokens) == ("high", 4096, 1024)
    assert config.over_budget is runtime_contract.OverBudget.REFUSE
    assert config.thinking.off == {"enable_thinking": False}
    assert (config.tenants.source, config.tenants.header) == (runtime_contract.TenantSource.HEADER, "x-team")
    assert config.admission.preempted_share < b.sizing_input().preemption_risk_permille / 1000


def test_readiness_knows_a_drain_and_liveness_does_not() -> None:
    (engine,) = pod_of(rendered())["containers"]
    assert engine["readinessProbe"]["httpGet"]["path"] == "/reasoningpool/ready"
    assert engine["livenessProbe"]["httpGet"]["path"] == engine["startupProbe"]["httpGet"]["path"] == "/health"


def test_a_search_path_of_the_user_s_stays_behind_ours() -> None:
    overrides = {"containers": [{"name": "engine", "env": [{"name": "PYTHONPATH", "value": "/plugins"}]}]}
    (engine,) = pod_of(rendered(overrides=PodOverrides.model_validate(overrides)))["containers"]
    (path,) = [variable["value"] for variable in engine["env"] if variable["name"] == "PYTHONPATH"]
    assert path == "/opt/reasoningpool:/plugins"


def test_without_the_runtime_nothing_of_it_is_rendered() -> None:
    manifests = rendered(runtime=None)
    assert "ConfigMap" not in manifests
    assert not {"reasoningpool-runtime", "reasoningpool_runtime", "/opt/reasoningpool"} & set(
        _texts(manifests["StatefulSet"])
    )


def _texts(value: Any) -> list[str]:
    """Every text in a manifest, arguments cut at their value's first dot."""
    return re.split(r"[\s\"=.,{}\[\]]+", json.dumps(value))


def test_only_another_image_of_the_runtime_is_another_revision() -> None:
    def revision(**changes: Any) -> str:
        return run_revision(b.tier(runtime=runtime(**changes)), b.sizing_plan())

    assert revision() == revision(over_budget=OverBudget.REFUSE, show_thinking=False, default_effort="low")
    assert revision() != revision(image="registry.example/runtime:2")
    assert revision() != run_revision(b.tier(), b.sizing_plan())


def resolved(
    spec: dict[str, Any] | None, *, version: tuple[int, int, int] | None = (0, 33, 0), image: str | None = IMAGE
) -> tuple[EffectiveRuntime | None, Findings]:
    findings = Findings()
    stated = None if spec is None else RuntimeSpec.model_validate(spec)
    return resolve_runtime(stated, spec_tier(), version, image, findings), findings


def test_the_runtime_is_on_where_the_operator_knows_its_image() -> None:
    found, findings = resolved(None)
    assert found is not None
    assert (found.image, found.default_effort) == (IMAGE, "medium")
    assert findings.all() == ()
    assert resolved(None, image=None)[0] is None
    assert resolved({"enabled": False})[0] is None


@pytest.mark.parametrize("version", [(0, 31, 0), None], ids=["older", "unknown"])
def test_an_engine_that_was_not_tested_runs_without_it_and_the_user_is_told(
    version: tuple[int, int, int] | None,
) -> None:
    found, findings = resolved(None, version=version)
    assert found is None
    (finding,) = findings.all()
    assert "runs without it" in finding.message


def test_wanting_the_runtime_without_an_image_is_an_error() -> None:
    found, findings = resolved({"enabled": True}, image=None)
    assert found is None
    (finding,) = findings.all()
    assert finding.path == "spec.runtime.image"
