"""Defaults that descriptions of fields name (`kubectl explain`) are those of the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from reasoningpool.api.crd import crd
from reasoningpool.api.resource import parse_pool
from reasoningpool.api.scalars import parse_quantity
from reasoningpool.resolution import defaults
from reasoningpool.resolution.resolve import ResolutionSettings, resolve
from reasoningpool.resolution.types import EffectiveTier
from reasoningpool.sizing import constants
from support.pools import pool

# A value, not a sentence: a number with or without unit, true or false, an enum's value, a resource's name.
_VALUE = re.compile(r"(\d[\w.]*( minutes)?|true|false|[A-Z][a-z]+([A-Z][a-z]+)+|[a-z]+\.com/\w+)")
# Accepted, and without effect in this version: there is no code to compare with.
NOT_IMPLEMENTED = {
    "scaling.targetKVUsagePercent",
    "scaling.scaleUpStabilizationSeconds",
    "scaling.scaleDownStabilizationSeconds",
    "gateway.failureMode",
    "monitoring.podMonitor",
    "monitoring.rules",
}


def documented() -> dict[str, str]:
    """Default values by the last two parts of the field's path."""
    (version,) = crd()["spec"]["versions"]
    found: dict[str, set[str]] = {}
    for path, description in _descriptions("spec", version["schema"]["openAPIV3Schema"]["properties"]["spec"]):
        text = re.search(r"Default: (?:.*, at least )?(.+?)(?:[.;](?: |$)|$)", description)
        if text is not None and _VALUE.fullmatch(text[1]):
            found.setdefault(".".join(path.replace("[]", "").split(".")[-2:]), set()).add(text[1])
    assert all(len(values) == 1 for values in found.values()), found
    return {name: values.pop() for name, values in found.items()}


def _descriptions(path: str, node: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield path, node.get("description", "")
    for name, child in node.get("properties", {}).items():
        yield from _descriptions(f"{path}.{name}", child)
    if "items" in node:
        yield from _descriptions(f"{path}[]", node["items"])


def effective_tier(settings: ResolutionSettings) -> EffectiveTier:
    """A tier that states nothing."""
    body = pool(engine={})
    body["spec"]["accelerator"].pop("perReplica", None)
    effective = resolve(parse_pool(body), settings)
    assert effective.errors == ()
    return effective.tiers[0]


@pytest.fixture
def tier() -> EffectiveTier:
    return effective_tier(ResolutionSettings())


def test_every_documented_value_is_that_of_the_code(tier: EffectiveTier) -> None:
    engine, inputs = tier.engine, tier.sizing_input
    with_runtime = effective_tier(ResolutionSettings(runtime_image="registry.example/runtime:1")).runtime
    assert with_runtime is not None
    minutes, rest = divmod(constants.STARTUP_FLOOR_S, 60)
    assert rest == 0
    bandwidth = documented()["engine.loadBandwidth"]
    assert parse_quantity(bandwidth) == constants.LOAD_BANDWIDTH_BYTES_PER_S
    assert documented() == {
        "image.pullPolicy": "IfNotPresent",
        "claimTemplate.retain": "false",
        "custom.resourceName": defaults.GPU_RESOURCE,
        "accelerator.perReplica": str(tier.accelerator.per_replica),
        "engine.imagePullPolicy": str(engine.image_pull_policy),
        "engine.memoryUtilizationPercent": str(engine.memory_utilization_percent),
        "engine.enforceEager": str(inputs.enforce_eager).lower(),
        "engine.prefixCaching": str(inputs.prefix_caching).lower(),
        "engine.trustRemoteCode": str(engine.trust_remote_code).lower(),
        "engine.loadBandwidth": bandwidth,
        "engine.startupTimeoutSeconds": f"{minutes} minutes",
        "concurrency.preemptionRiskPermille": str(inputs.preemption_risk_permille),
        "rollout.maxUnavailable": str(tier.max_unavailable),
        "podOverrides.automountServiceAccountToken": "false",
        "runtime.showThinking": str(with_runtime.show_thinking).lower(),
    } | {name: documented()[name] for name in NOT_IMPLEMENTED}
