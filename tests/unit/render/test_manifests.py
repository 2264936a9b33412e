"""Every manifest is a valid object of its kind, whatever the tier asks for."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest

from reasoningpool.api import names
from reasoningpool.api.spec_engine import ChatTemplate, ConfigMapKeyRef
from reasoningpool.api.spec_model import (
    ClaimSource,
    ClaimTemplate,
    HuggingFaceSource,
    ImageSource,
    ModelCache,
    ModelSource,
    SecretKeyRef,
)
from reasoningpool.api.spec_tier import KVOffloadSpec
from reasoningpool.render import render_pool, render_tier
from reasoningpool.resolution.types import EffectiveTier
from unit.render import builders as b

REF = SecretKeyRef(name="hf", key="token")
OVERRIDES: dict[str, Any] = {
    "labels": {"team": "a"},
    "annotations": {"note": "x"},
    "nodeSelector": {"zone": "z1"},
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]
        }
    },
    "tolerations": [{"key": "spot", "operator": "Exists"}],
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    "volumes": [
        {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "certs", "secret": {"secretName": "certs"}},
        {"name": "conf", "configMap": {"name": "conf", "items": [{"key": "a", "path": "b"}]}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
    ],
    "initContainers": [{"name": "fetch", "image": "fetch:1", "restartPolicy": "Always"}],
    "containers": [
        {
            "name": "engine",
            "env": [
                {"name": "A", "value": "b"},
                {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            ],
            "envFrom": [{"secretRef": {"name": "more"}}],
            "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
            "resources": {"limits": {"cpu": "8", "memory": "64Gi", "ephemeral-storage": "100Gi"}},
            "ports": [{"name": "extra", "containerPort": 9000}],
        },
        {"name": "helper", "image": "helper:1", "ports": [{"containerPort": 9100}]},
    ],
    "runtimeClassName": "nvidia",
    "priorityClassName": "high",
    "schedulerName": "other",
    "sharedMemory": "2Gi",
    "preStopSeconds": 20,
    "terminationGracePeriodSeconds": 4000,
}
TIERS = {
    "plain": b.tier(),
    "chat": b.chat_tier(),
    "cpu": b.cpu_tier(),
    "no preStop": b.tier(overrides={"preStopSeconds": 0}),
    "old engine": b.tier(engine=b.engine(version=(0, 17, 1))),
    "overrides": b.tier(overrides=OVERRIDES),
    "alternatives": b.tier(accelerator=b.accelerator(node_labels={"gpu": ("H100-A", "H100-B")})),
    "token": b.tier(model=b.model(source=ModelSource(hugging_face=HuggingFaceSource(token_secret_ref=REF)))),
    "key": b.tier(engine=b.engine(api_key_secret_ref=REF, image_pull_secrets=("a", "b"))),
    "claim": b.tier(model=b.model(source=ModelSource(persistent_volume_claim=ClaimSource(claim_name="w")))),
    "shared cache": b.tier(model=b.model(cache=ModelCache(claim_name="cache"))),
    "own cache": b.tier(
        model=b.model(cache=ModelCache(claim_template=ClaimTemplate(size="100Gi", storage_class_name="fast")))
    ),
    "inline template": b.tier(engine=b.engine(chat_template=ChatTemplate(inline="{{ x }}\n"))),
    "template": b.tier(engine=b.engine(chat_template=ChatTemplate(config_map_ref=ConfigMapKeyRef(name="t", key="k")))),
    "offload": b.tier(kv_offload=KVOffloadSpec(cpu_memory="64Gi")),
    "two at once": b.tier(max_unavailable=2),
}


def manifests(tier: EffectiveTier) -> list[dict[str, Any]]:
    rendered = render_tier(b.pool_identity(), tier, b.sizing_plan(), intent="i")
    return [*render_pool(b.pool_identity()), *rendered.manifests]


@pytest.mark.parametrize("tier", TIERS.values(), ids=TIERS)
def test_manifests_are_valid(tier: EffectiveTier) -> None:
    for manifest in manifests(tier):
        kubernetes_validate.validate(manifest, "1.37", strict=True)


def test_weights_from_an_image_are_a_volume() -> None:
    image = ImageSource(reference="registry.example/weights@sha256:0", path="m")
    tier = b.tier(model=b.model(source=ModelSource(image=image)))
    volume = next(v for v in b.pod(tier)["volumes"] if v["name"] == "weights")
    assert volume["image"] == {"reference": "registry.example/weights@sha256:0", "pullPolicy": "IfNotPresent"}
    for manifest in manifests(tier):
        kubernetes_validate.validate(manifest, "1.37", strict=True)


def test_objects_come_in_the_order_they_are_applied() -> None:
    kinds = [(m["kind"], m["metadata"]["name"]) for m in manifests(b.tier())]
    assert kinds == [
        ("ServiceAccount", "qwen-engine"),
        ("Service", "qwen-reasoning-pods"),
        ("Service", "qwen-reasoning"),
        ("StatefulSet", "qwen-reasoning"),
        ("PodDisruptionBudget", "qwen-reasoning"),
    ]


def test_every_object_is_owned_by_the_pool_and_found_by_its_labels() -> None:
    for manifest in manifests(b.tier()):
        (owner,) = manifest["metadata"]["ownerReferences"]
        assert owner == {
            "apiVersion": "reasoningpool.io/v1alpha1",
            "kind": "ReasoningPool",
            "name": "qwen",
            "uid": b.pool_identity().uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        assert names.pool_selector("qwen").items() <= manifest["metadata"]["labels"].items()
        assert manifest["metadata"]["namespace"] == "llm"


def test_the_same_tier_gives_equal_manifests() -> None:
    assert manifests(TIERS["overrides"]) == manifests(TIERS["overrides"])


def test_manifests_share_no_mutable_state() -> None:
    first = manifests(b.tier())
    for manifest in first:
        manifest["metadata"]["labels"].clear()
    for manifest in manifests(b.tier()):
        assert manifest["metadata"]["labels"]


def test_replicas_are_left_to_their_own_field_manager() -> None:
    assert "replicas" not in b.render(b.tier())["spec"]


def test_the_routing_label_is_on_pods_and_in_the_service_but_not_in_the_selector() -> None:
    pool, service, workload, _ = render_tier(b.pool_identity(), b.tier(), b.sizing_plan()).manifests
    assert service["spec"]["selector"][names.LABEL_ROUTABLE] == "true"
    assert workload["spec"]["template"]["metadata"]["labels"][names.LABEL_ROUTABLE] == "true"
    assert names.LABEL_ROUTABLE not in workload["spec"]["selector"]["matchLabels"]
    assert names.LABEL_ROUTABLE not in pool["spec"]["selector"]


def test_only_the_headless_service_lists_pods_that_are_not_ready() -> None:
    headless, service, *_ = render_tier(b.pool_identity(), b.tier(), b.sizing_plan()).manifests
    assert headless["spec"]["clusterIP"] == "None"
    assert headless["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["publishNotReadyAddresses"] is False


def test_a_drain_may_always_move_the_only_replica() -> None:
    budget = render_tier(b.pool_identity(), b.tier(), b.sizing_plan()).manifests[-1]
    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_max_unavailable_is_sent_only_where_it_says_something() -> None:
    assert "maxUnavailable" not in b.render(b.tier())["spec"]["updateStrategy"]["rollingUpdate"]
    assert b.render(b.tier(max_unavailable=3))["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == 3


@pytest.mark.parametrize(
    ("cache", "deleted"),
    [
        (None, "Retain"),
        (ModelCache(claim_name="shared"), "Retain"),
        (ModelCache(claim_template=ClaimTemplate(size="1Gi")), "Delete"),
        (ModelCache(claim_template=ClaimTemplate(size="1Gi", retain=True)), "Retain"),
    ],
)
def test_claims_stay_where_asked_for_and_always_through_a_scale_down(cache: ModelCache | None, deleted: str) -> None:
    policy = b.render(b.tier(model=b.model(cache=cache)))["spec"]["persistentVolumeClaimRetentionPolicy"]
    assert policy == {"whenDeleted": deleted, "whenScaled": "Retain"}


def test_the_service_account_has_no_token() -> None:
    (account,) = render_pool(b.pool_identity())
    assert account["automountServiceAccountToken"] is False
    assert b.pod(b.tier())["automountServiceAccountToken"] is False
