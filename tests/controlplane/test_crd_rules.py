"""Every rule of the resource, on the real API server, with the message that the user sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from reasoningpool.api.base import ApiModel
from reasoningpool.api.resource import SpecError, parse_pool
from support.pools import changed, chat_tier, pool, tier

if TYPE_CHECKING:
    from cluster.core import Cluster
    from support.apiserver import ApiServer

TIER = "spec.tiers.0"
VOLUMES = f"{TIER}.podOverrides.volumes"
CONTAINERS = f"{TIER}.podOverrides.containers"
ARGUMENTS = "spec.engine.extraArgs"
QUANTILES = {"p50": 10, "p90": 20, "p99": 30}

# What is wrong with the pool, and what the answer must name: the field and the words.
RULES: dict[str, tuple[dict[str, Any], str, str]] = {
    "source-two": (
        changed(pool(), "spec.model.source", {"huggingFace": {}, "image": {"reference": "a/b:1"}}),
        "spec.model.source",
        "set exactly one of huggingFace, persistentVolumeClaim and image",
    ),
    "source-none": (changed(pool(), "spec.model.source", {}), "spec.model.source", "set exactly one of huggingFace"),
    "cache-two": (
        changed(pool(), "spec.model.cache", {"claimName": "c", "claimTemplate": {"size": "1Gi"}}),
        "spec.model.cache",
        "set exactly one of claimName and claimTemplate",
    ),
    "accelerator-none": (
        pool(accelerator={"perReplica": 1}),
        "spec.accelerator",
        "set exactly one of product and custom",
    ),
    "accelerator-two": (
        pool(accelerator={"product": "L4-24GB", "custom": {"memory": "24Gi", "computeCapability": "8.9"}}),
        "spec.accelerator",
        "set exactly one of product and custom",
    ),
    "chat-template": (
        changed(pool(), "spec.engine.chatTemplate", {}),
        "spec.engine.chatTemplate",
        "set exactly one of inline",
    ),
    "quantiles": (
        changed(pool(), f"{TIER}.tokenDistribution", [{"effort": "medium", "output": {"p50": 5, "p90": 4, "p99": 9}}]),
        "spec.tiers[0].tokenDistribution[0].output",
        "must have p50 <= p90 <= p99",
    ),
    "distribution-effort": (
        changed(pool(), f"{TIER}.tokenDistribution", [{"effort": "typo", "output": QUANTILES}]),
        "spec.tiers[0].tokenDistribution",
        "every entry must name one of the tier's efforts",
    ),
    "min-replicas-above-max": (
        pool(tiers=[tier(replicas=None) | {"scaling": {"minReplicas": 10, "maxReplicas": 1}}]),
        "spec.tiers[0].scaling.minReplicas",
        "minReplicas must not exceed maxReplicas",
    ),
    "request-above-limit": (
        changed(
            pool(),
            CONTAINERS,
            [{"name": "engine", "resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "100Mi"}}}],
        ),
        "spec.tiers[0].podOverrides.containers[0].resources.requests",
        "a request must not exceed its limit",
    ),
    "tiers-of-one-name": (pool(tiers=[tier("a"), tier("a")]), "spec.tiers[1]", "Duplicate value"),
    "max-replicas-zero": (
        pool(tiers=[tier(replicas=None) | {"scaling": {"minReplicas": 0, "maxReplicas": 0}}]),
        "spec.tiers[0].scaling.maxReplicas",
        "should be greater than or equal to 1",
    ),
    "replicas-and-scaling": (
        pool(tiers=[tier() | {"scaling": {"minReplicas": 1, "maxReplicas": 2}}]),
        "spec.tiers[0].replicas",
        "set at most one of replicas and scaling",
    ),
    "speculative-model": (
        changed(pool(), f"{TIER}.speculative", {"method": "EAGLE3", "tokens": 3}),
        "spec.tiers[0].speculative.method",
        "model is required for EAGLE3 and DraftModel",
    ),
    "chat-thinks": (
        pool(tiers=[chat_tier(efforts=[{"name": "x", "thinkingTokens": 5, "answerTokens": 5}])]),
        "spec.tiers[0].efforts",
        "a Chat tier has thinking switched off: set thinkingTokens to 0, or use workload Reasoning",
    ),
    "shares": (
        changed(pool(), f"{TIER}.efforts.0.sharePercent", 50),
        "spec.tiers[0].efforts",
        "set sharePercent on all efforts so that they sum to 100, or on none",
    ),
    "shared-prefix": (
        changed(pool(), f"{TIER}.sharedPrefixTokens", 5000),
        "spec.tiers[0].sharedPrefixTokens",
        "sharedPrefixTokens is a part of promptTokens and must not exceed it",
    ),
    "gateway-parents": (
        pool(gateway={"mode": "InferenceGateway"}),
        "spec.gateway.parentRefs",
        "parentRefs are required",
    ),
    "gateway-none-parents": (
        pool(gateway={"mode": "None", "parentRefs": [{"name": "g"}]}),
        "spec.gateway.parentRefs",
        "must be absent",
    ),
    "env-two": (
        changed(
            pool(),
            CONTAINERS,
            [
                {
                    "name": "engine",
                    "env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                }
            ],
        ),
        "spec.tiers[0].podOverrides.containers[0].env[0].value",
        "set at most one of value and valueFrom",
    ),
    "env-source": (
        changed(pool(), CONTAINERS, [{"name": "engine", "env": [{"name": "A", "valueFrom": {}}]}]),
        "valueFrom",
        "set exactly one of secretKeyRef, configMapKeyRef and fieldRef",
    ),
    "volume-none": (changed(pool(), VOLUMES, [{"name": "v"}]), "volumes[0]", "set exactly one of emptyDir"),
    "memory-zero": (
        changed(pool(), "spec.engine.kvCacheMemory", "0Gi"),
        "spec.engine.kvCacheMemory",
        "must be from 1Mi to 16Ti",
    ),
    "memory-absurd": (
        changed(pool(), f"{TIER}.kvOffload", {"cpuMemory": "1Pi"}),
        "spec.tiers[0].kvOffload.cpuMemory",
        "must be from 1Mi to 16Ti",
    ),
    "memory-number": (
        changed(pool(), f"{TIER}.podOverrides", {"sharedMemory": 2**44 + 1}),
        "spec.tiers[0].podOverrides.sharedMemory",
        "must be from 1Mi to 16Ti",
    ),
    "storage-absurd": (
        changed(pool(), "spec.model.cache", {"claimTemplate": {"size": "1025Ti"}}),
        "spec.model.cache.claimTemplate.size",
        "must be from 1Mi to 1Pi",
    ),
    "resource-absurd": (
        changed(pool(), CONTAINERS, [{"name": "engine", "resources": {"limits": {"cpu": "2P"}}}]),
        "spec.tiers[0].podOverrides.containers[0].resources.limits",
        "must be from 0 to 1P",
    ),
    "bandwidth": (
        changed(pool(), "spec.engine.loadBandwidth", "1"),
        "spec.engine.loadBandwidth",
        "must be from 1M to 1P bytes per second",
    ),
    "nul-variable": (
        changed(pool(), CONTAINERS, [{"name": "engine", "env": [{"name": "A", "value": "a\0b"}]}]),
        "spec.tiers[0].podOverrides.containers[0].env[0].value",
        "should match",
    ),
    "nul-argument": (
        changed(pool(), "spec.engine.extraArgs", ["--seed\0"]),
        "spec.engine.extraArgs[0]",
        "should match",
    ),
    "nul-template": (
        changed(pool(), "spec.engine.chatTemplate", {"inline": "a\0b"}),
        "spec.engine.chatTemplate.inline",
        "should match",
    ),
    "nul-config": (changed(pool(), "spec.model.configJSON", "{}\0"), "spec.model.configJSON", "should match"),
    "nul-annotation": (
        changed(pool(), f"{TIER}.podOverrides.annotations", {"a": "b\0"}),
        "spec.tiers[0].podOverrides.annotations",
        "should match",
    ),
    "share-zero": (
        changed(pool(), "spec.tiers.0.efforts.0.sharePercent", 0),
        "sharePercent",
        "greater than or equal to 1",
    ),
    "tier-pods": (pool(tiers=[tier("pods")]), "spec.tiers[0].name", "the names pods, gateway, endpoints are taken"),
    "tier-gateway": (pool(tiers=[tier("gateway")]), "spec.tiers[0].name", "are taken by other objects of a pool"),
    "tier-dash": (pool(tiers=[tier("a-b")]), "spec.tiers[0].name", "should match"),
    "name-upper": (pool("Pool"), "metadata.name", "lower case"),
    "name-digit": (pool("1pool"), "<nil>", "starting with a letter"),
    "name-length": (pool("p" * 40, tiers=[tier("reasoning")]), "<nil>", "must be shorter than 45 characters"),
    "label-key": (
        changed(pool(), f"{TIER}.podOverrides.labels", {"not a key!": "x"}),
        "spec.tiers[0].podOverrides.labels",
        "every key must match",
    ),
    "model-option": (changed(pool(), "spec.model.id", "--port=1"), "spec.model.id", "should match"),
    "model-newline": (changed(pool(), "spec.model.id", "a\nb"), "spec.model.id", "should match"),
    "expansion": (changed(pool(), "spec.model.servedName", "$(HF_TOKEN)"), "spec.model.servedName", "should match"),
    "workload": (
        changed(pool(), f"{TIER}.workload", "Batch"),
        "spec.tiers[0].workload",
        'supported values: "Reasoning", "Chat"',
    ),
    "tiers-none": (pool(tiers=[]), "spec.tiers", "should have at least 1 items"),
    "tiers-many": (pool(tiers=[tier(f"t{i}") for i in range(10_000)]), "spec.tiers", "must have at most 16 items"),
}


@pytest.mark.field_report("U15")
@pytest.mark.parametrize("case", RULES)
def test_rule_is_enforced_by_the_api_server_with_its_message(apiserver: ApiServer, case: str) -> None:
    body, field, words = RULES[case]
    answer = apiserver.try_create("default", _without_nones(body))
    assert answer.status == 422, answer.body
    assert words in answer.message
    assert field in answer.message


@pytest.mark.parametrize("case", RULES)
def test_command_line_refuses_what_the_api_server_refuses(case: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse_pool(_without_nones(RULES[case][0]))
    assert all(finding.path and finding.message for finding in refused.value.findings)


def test_every_rule_of_the_models_has_a_case() -> None:
    """A rule that is added without a case here fails this test."""
    tested = " ".join(words for _, _, words in RULES.values())
    untested = [
        rule.message
        for model in _models(ApiModel)
        for rule in model.RULES
        if rule.cel and _key(rule.message) not in tested
    ]
    assert untested == []


def test_valid_pools_are_accepted(apiserver: ApiServer) -> None:
    good = pool(tiers=[tier(), chat_tier()])
    assert apiserver.try_create("default", good).status == 201
    assert parse_pool(good).name == "p"


@pytest.mark.parametrize("how", ["strict", "server-side apply", "kubectl"])
def test_unknown_fields_are_refused(crd_cluster: Cluster, apiserver: ApiServer, how: str) -> None:
    body = changed(pool(), "spec.modle", "x")
    if how == "strict":
        message = apiserver.try_create("default", body).message
    elif how == "server-side apply":
        message = apiserver.apply(f"{apiserver.pools('default')}/p", body).message
    else:
        message = crd_cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump(body), check=False).stderr
    assert "spec.modle" in message
    assert apiserver.request("GET", f"{apiserver.pools('default')}/p").status == 404


def test_explain_reads_well(crd_cluster: Cluster) -> None:
    shown = crd_cluster.kubectl("explain", "reasoningpool.spec.tiers.efforts").stdout
    assert "thinkingTokens\t<integer> -required-" in shown
    assert "Most tokens of thinking." in shown


def test_crd_is_small_structural_and_without_defaults(crd_cluster: Cluster) -> None:
    text = (crd_cluster.kubectl("get", "crd", "reasoningpools.reasoningpool.io", "-o", "yaml")).stdout
    live = yaml.safe_load(text)
    conditions = {c["type"]: c["status"] for c in live["status"]["conditions"]}
    assert conditions.get("NonStructuralSchema", "False") == "False"
    schema = live["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert list(_unbounded(schema["properties"]["spec"], "spec")) == []
    assert list(_unbounded(schema["properties"]["status"], "status")) == []
    assert list(_with_key(schema, "default")) == []
    assert list(_with_key(schema, "x-kubernetes-preserve-unknown-fields")) == []


def _models(base: type[ApiModel]) -> set[type[ApiModel]]:
    return {base} | {model for child in base.__subclasses__() for model in _models(child)}


def _key(message: str) -> str:
    return message[:24]


def _unbounded(schema: dict[str, Any], path: str) -> Any:
    kind = schema.get("type")
    if kind == "string" and not {"maxLength", "enum"} & schema.keys():
        yield path
    if kind == "array" and "maxItems" not in schema:
        yield path
    if kind == "object" and "properties" not in schema and "maxProperties" not in schema:
        yield path
    for name, child in schema.get("properties", {}).items():
        yield from _unbounded(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from _unbounded(schema[key], f"{path}[]")


def _with_key(node: Any, key: str, *, properties: bool = False) -> Any:
    if isinstance(node, dict):
        if key in node and not properties:
            yield node
        for name, child in node.items():
            yield from _with_key(child, key, properties=name == "properties" and not properties)
    elif isinstance(node, list):
        for child in node:
            yield from _with_key(child, key)


def _without_nones(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_nones(value) for key, value in node.items() if value is not None}
    return [_without_nones(entry) for entry in node] if isinstance(node, list) else node
