"""What podOverrides must not say, and where a secret does not belong."""

from __future__ import annotations

from typing import Any

import pytest

from reasoningpool.api.findings import Finding
from reasoningpool.api.resource import parse_pool
from reasoningpool.resolution.resolve import ResolutionSettings, resolve
from support.pools import changed, pool

OVERRIDES = "spec.tiers.0.podOverrides"
CONTAINERS = "spec.tiers[0].podOverrides.containers[0]"


def errors(body: dict[str, Any]) -> tuple[Finding, ...]:
    return resolve(parse_pool(body), ResolutionSettings()).errors


def warnings(body: dict[str, Any]) -> tuple[Finding, ...]:
    return resolve(parse_pool(body), ResolutionSettings()).warnings


def engine(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": "engine"} | fields]


@pytest.mark.parametrize("kind", ["requests", "limits"])
@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu", "google.com/tpu"])
@pytest.mark.parametrize("product", ["H100-SXM-80GB", "CPU"])
def test_devices_of_the_engine_are_refused_with_the_field_to_use(kind: str, resource: str, product: str) -> None:
    body = pool(accelerator={"product": product}, engine={"image": "x/y:v0.33.0", "kvCacheMemory": "1Gi"})
    found = errors(changed(body, f"{OVERRIDES}.containers", engine(resources={kind: {resource: 2}})))
    assert [error.path for error in found] == [f"{CONTAINERS}.resources.{kind}"]
    assert resource in found[0].message
    assert "spec.accelerator.perReplica" in found[0].message


def test_a_custom_resource_is_refused_where_the_tier_counts_it() -> None:
    custom = {"custom": {"memory": "80Gi", "computeCapability": "9.0", "resourceName": "example.org/gpu"}}
    body = changed(pool(), "spec.tiers.0.accelerator", custom)
    body = changed(body, f"{OVERRIDES}.containers", engine(resources={"limits": {"example.org/gpu": 1}}))
    assert "spec.tiers[0].accelerator.perReplica" in errors(body)[0].message


def test_other_resources_and_those_of_sidecars_stay_the_users() -> None:
    sidecar = {"name": "tool", "image": "x/y:1", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    own = engine(resources={"limits": {"memory": "64Gi", "rdma/hca": 1, "example.org/x": 1}})
    assert errors(changed(pool(), f"{OVERRIDES}.containers", [*own, sidecar])) == ()


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("VLLM_API_KEY", "set engine.apiKeySecretRef"),
        ("HF_TOKEN", "set model.source.huggingFace.tokenSecretRef"),
        ("HUGGING_FACE_HUB_TOKEN", "set model.source.huggingFace.tokenSecretRef"),
        ("AWS_SECRET_ACCESS_KEY", "secretKeyRef"),
        ("WANDB_API_KEY", "secretKeyRef"),
        ("DB_PASSWORD", "secretKeyRef"),
    ],
)
def test_a_secret_as_text_brings_a_warning_without_the_secret(name: str, use: str) -> None:
    body = changed(pool(), f"{OVERRIDES}.containers", engine(env=[{"name": name, "value": "hunter2"}]))
    (warning,) = warnings(body)
    assert warning.path == f"{CONTAINERS}.env[0].value"
    assert name in warning.message
    assert use in warning.message
    assert "hunter2" not in warning.message


def test_a_sidecars_secret_has_no_typed_field() -> None:
    sidecar = {"name": "tool", "image": "x/y:1", "env": [{"name": "HF_TOKEN", "value": "x"}]}
    (warning,) = warnings(changed(pool(), f"{OVERRIDES}.containers", [sidecar]))
    assert "secretKeyRef" in warning.message


def test_secrets_by_reference_and_plain_variables_bring_no_warning() -> None:
    env = [
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "TOKENIZERS_PARALLELISM", "value": "false"},
        {"name": "MAX_TOKENS", "value": "1"},
        {"name": "API_KEY", "value": ""},
    ]
    assert warnings(changed(pool(), f"{OVERRIDES}.containers", engine(env=env))) == ()
