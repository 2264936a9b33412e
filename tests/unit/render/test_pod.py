"""The pod: resources, storage, probes, stopping, placement."""

from __future__ import annotations

from typing import Any

import pytest

from reasoningpool.api.spec_engine import ChatTemplate
from reasoningpool.api.spec_model import ClaimSource, ClaimTemplate, ModelCache, ModelSource
from reasoningpool.api.spec_tier import KVOffloadSpec
from reasoningpool.render.pod.volumes import ANNOTATION_CHAT_TEMPLATE
from reasoningpool.resolution.types import EffectiveTier
from unit.render import builders as b

GIB = 2**30


def mounts(tier: EffectiveTier) -> dict[str, dict[str, Any]]:
    return {mount["mountPath"]: mount for mount in b.engine_container(tier)["volumeMounts"]}


def volumes(tier: EffectiveTier) -> dict[str, dict[str, Any]]:
    return {volume["name"]: volume for volume in b.pod(tier)["volumes"]}


def resources(tier: EffectiveTier, **plan: Any) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = b.engine_container(tier, b.sizing_plan(**plan))["resources"]
    return found


def gpus(count: int, **changes: Any) -> EffectiveTier:
    return b.tier(accelerator=b.accelerator(per_replica=count), **changes)


def with_engine(**override: Any) -> EffectiveTier:
    return b.tier(overrides={"containers": [{"name": "engine", **override}]})


@pytest.mark.parametrize(
    ("count", "cpu", "requested", "limit"),
    [(1, "3", "9Gi", "18Gi"), (4, "6", "24Gi", "45Gi"), (8, "10", "44Gi", "81Gi")],
)
def test_default_requests_grow_with_the_devices(count: int, cpu: str, requested: str, limit: str) -> None:
    found = resources(gpus(count), tensor_parallel_size=count, weight_bytes_per_gpu=16 * GIB // count)
    assert found == {
        "requests": {"cpu": cpu, "memory": requested, "nvidia.com/gpu": str(count)},
        "limits": {"memory": limit, "nvidia.com/gpu": str(count)},
    }


def test_a_cpu_engine_needs_memory_for_weights_and_kv_cache_and_no_device() -> None:
    found = resources(b.cpu_tier(), weight_bytes_per_gpu=GIB, kv_pool_bytes=GIB)
    assert found == {"requests": {"cpu": "500m", "memory": "5Gi"}, "limits": {"memory": "8Gi"}}


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"limits": {"memory": "64Gi"}}, ("9Gi", "65Gi")),
        ({"limits": {"memory": "4Gi"}}, ("5Gi", "5Gi")),
        ({"requests": {"memory": "64Gi"}}, ("65Gi", "65Gi")),
        ({"requests": {"memory": "29Gi"}, "limits": {"memory": "29Gi"}}, ("30Gi", "30Gi")),
    ],
)
def test_stated_memory_replaces_the_default_and_shared_memory_is_on_top(
    stated: dict[str, Any], expected: tuple[str, str]
) -> None:
    found = resources(with_engine(resources=stated))
    assert (found["requests"]["memory"], found["limits"]["memory"]) == expected


def test_stated_amounts_keep_their_unit_of_measure() -> None:
    stated = {"requests": {"cpu": "3500m", "ephemeral-storage": "100G"}, "limits": {"cpu": 8}}
    found = resources(with_engine(resources=stated))
    assert found["requests"]["cpu"] == "3500m"
    assert found["limits"]["cpu"] == "8"
    assert found["requests"]["ephemeral-storage"] == str(100 * 10**9)


def test_the_number_of_devices_is_the_accelerators() -> None:
    found = resources(with_engine(resources={"limits": {"nvidia.com/gpu": 7}}))
    assert found["limits"]["nvidia.com/gpu"] == "1"


def test_offloaded_kv_gets_its_room_in_shared_memory_and_in_the_limit() -> None:
    plain, offloading = gpus(2), gpus(2, kv_offload=KVOffloadSpec(cpu_memory="64Gi"))
    assert volumes(plain)["shm"]["emptyDir"]["sizeLimit"] == "4Gi"
    assert volumes(offloading)["shm"]["emptyDir"]["sizeLimit"] == "68Gi"
    found = resources(offloading, tensor_parallel_size=2, weight_bytes_per_gpu=8 * GIB)
    assert found["limits"]["memory"] == "93Gi"


def test_shared_memory_too_small_for_the_offload_is_raised_with_a_warning() -> None:
    tier = b.tier(kv_offload=KVOffloadSpec(cpu_memory="64Gi"), overrides={"sharedMemory": "8Gi"})
    assert volumes(tier)["shm"]["emptyDir"]["sizeLimit"] == "65Gi"
    assert "sharedMemory" in b.warnings(tier)


def test_the_cache_is_where_the_model_says() -> None:
    shared = b.tier(model=b.model(cache=ModelCache(claim_name="models")))
    own = b.tier(model=b.model(cache=ModelCache(claim_template=ClaimTemplate(size="200Gi", storage_class_name="fast"))))
    assert volumes(b.tier())["cache"] == {"name": "cache", "emptyDir": {}}
    assert volumes(shared)["cache"]["persistentVolumeClaim"] == {"claimName": "models"}
    assert "cache" not in volumes(own)
    (claim,) = b.render(own)["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"] == {"requests": {"storage": "200Gi"}}


def test_mounted_weights_are_read_only_and_need_no_hub() -> None:
    tier = b.tier(model=b.model(source=ModelSource(persistent_volume_claim=ClaimSource(claim_name="w"))))
    assert mounts(tier)["/models"]["readOnly"] is True
    assert volumes(tier)["weights"]["persistentVolumeClaim"] == {"claimName": "w", "readOnly": True}
    assert b.environment(tier)["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in b.environment(b.tier())


def test_an_inline_chat_template_travels_with_the_pod() -> None:
    text = '{% for m in messages %}{{ m["content"] }}\n{% endfor %}ü'
    tier = b.tier(engine=b.engine(chat_template=ChatTemplate(inline=text)))
    assert b.render(tier)["spec"]["template"]["metadata"]["annotations"][ANNOTATION_CHAT_TEMPLATE] == text
    (item,) = volumes(tier)["chat-template"]["downwardAPI"]["items"]
    assert item["fieldRef"]["fieldPath"] == "metadata.annotations['reasoningpool.io/chat-template']"
    assert mounts(tier)["/etc/reasoningpool/chat-template"]["readOnly"] is True


def test_the_startup_probe_gives_the_whole_budget() -> None:
    probe = b.engine_container(b.tier(), b.sizing_plan(startup_budget_seconds=1234))["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 1234


def test_a_stated_startup_timeout_wins() -> None:
    probe = b.engine_container(b.tier(engine=b.engine(startup_timeout_seconds=7200)))["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 7200


def test_a_dead_engine_is_not_given_the_time_to_drain() -> None:
    container = b.engine_container(b.tier(), b.sizing_plan(shutdown_timeout_seconds=3000))
    assert container["livenessProbe"]["terminationGracePeriodSeconds"] == 40
    assert "terminationGracePeriodSeconds" not in container["readinessProbe"]


def test_pre_stop_sleeps_natively_and_is_left_out_at_zero() -> None:
    assert b.engine_container(b.tier())["lifecycle"] == {"preStop": {"sleep": {"seconds": 10}}}
    assert "lifecycle" not in b.engine_container(b.tier(overrides={"preStopSeconds": 0}))


@pytest.mark.parametrize("pre_stop", [0, 5, 600])
@pytest.mark.parametrize("stated", [None, 1, 30, 700, 5000])
@pytest.mark.parametrize("version", [(0, 17, 0), (0, 33, 0), None])
def test_the_grace_period_is_always_longer_than_the_way_down(
    pre_stop: int, stated: int | None, version: tuple[int, int, int] | None
) -> None:
    overrides = {"preStopSeconds": pre_stop} | ({} if stated is None else {"terminationGracePeriodSeconds": stated})
    tier = b.tier(overrides=overrides, engine=b.engine(version=version))
    container = b.engine_container(tier)
    flags = dict(argument.partition("=")[::2] for argument in container["args"])
    drain = int(flags.get("--shutdown-timeout", 0))
    sleep = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    grace = b.pod(tier)["terminationGracePeriodSeconds"]
    assert grace > sleep + drain
    assert sleep + drain >= pre_stop + b.sizing_plan().shutdown_timeout_seconds
    if stated is not None and stated > sleep + drain:
        assert grace == stated


def test_one_kind_of_node_is_selected_several_are_alternatives() -> None:
    assert b.pod(b.tier())["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    several = b.pod(b.tier(accelerator=b.accelerator(node_labels={"gpu": ("A", "B")})))
    assert "nodeSelector" not in several
    required = several["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required == {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["A", "B"]}]}]
    }


def test_alternatives_are_required_in_every_term_of_the_users_affinity() -> None:
    zone = {"key": "zone", "operator": "In", "values": ["z1"]}
    disk = {"key": "disk", "operator": "Exists"}
    terms = [{"matchExpressions": [zone]}, {"matchExpressions": [disk]}]
    tier = b.tier(
        accelerator=b.accelerator(node_labels={"gpu": ("A", "B")}),
        overrides={
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            }
        },
    )
    ours = {"key": "gpu", "operator": "In", "values": ["A", "B"]}
    rendered = b.pod(tier)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [term["matchExpressions"] for term in rendered["nodeSelectorTerms"]] == [[zone, ours], [disk, ours]]


def test_a_node_label_the_user_selects_is_the_users() -> None:
    tier = b.tier(accelerator=b.accelerator(node_labels={"gpu": ("A", "B")}), overrides={"nodeSelector": {"gpu": "C"}})
    assert b.pod(tier)["nodeSelector"] == {"gpu": "C"}
    assert "affinity" not in b.pod(tier)


def test_replicas_spread_over_hosts_within_a_revision() -> None:
    (constraint,) = b.pod(b.tier())["topologySpreadConstraints"]
    assert constraint["whenUnsatisfiable"] == "ScheduleAnyway"
    assert constraint["topologyKey"] == "kubernetes.io/hostname"
    assert constraint["matchLabelKeys"] == ["controller-revision-hash"]
    assert constraint["labelSelector"]["matchLabels"] == b.render(b.tier())["spec"]["selector"]["matchLabels"]


def test_the_engines_last_words_reach_the_pods_status() -> None:
    assert b.engine_container(b.tier())["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_secrets_come_by_reference() -> None:
    from reasoningpool.api.spec_model import HuggingFaceSource, SecretKeyRef

    source = ModelSource(hugging_face=HuggingFaceSource(token_secret_ref=SecretKeyRef(name="hf", key="t")))
    tier = b.tier(model=b.model(source=source), engine=b.engine(api_key_secret_ref=SecretKeyRef(name="api", key="k")))
    found = b.environment(tier)
    assert found["HF_TOKEN"] == {"secretKeyRef": {"name": "hf", "key": "t", "optional": False}}
    assert found["VLLM_API_KEY"] == {"secretKeyRef": {"name": "api", "key": "k", "optional": False}}


def test_pull_secrets_and_policy() -> None:
    tier = b.tier(engine=b.engine(image_pull_secrets=("one", "two")))
    assert b.pod(tier)["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]
    assert b.engine_container(tier)["imagePullPolicy"] == "IfNotPresent"
