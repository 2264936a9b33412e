"""Field reports whose right behaviour is (or begins) in what is rendered, by their ids."""

from __future__ import annotations

from typing import Any

import pytest

from reasoningpool.api import names
from reasoningpool.api.pod_overrides import PodOverrides
from reasoningpool.api.spec_engine import ChatTemplate, ConfigMapKeyRef
from reasoningpool.api.spec_model import SecretKeyRef
from reasoningpool.api.spec_tier import KVOffloadSpec
from reasoningpool.render import PoolIdentity, check_chat_template, engine_arguments, render_tier
from reasoningpool.render.pod.environment import DIRECTORIES
from reasoningpool.resolution.types import EffectiveTier
from reasoningpool.rollout import settle
from reasoningpool.sizing.types import KVCacheDType
from reasoningpool.vllm.extra_arguments import check_extra_arguments
from unit.render import builders as b


def args(tier: EffectiveTier, **plan: Any) -> tuple[str, ...]:
    return engine_arguments(tier, b.sizing_plan(**plan))


def gib(quantity: str) -> float:
    return {"Gi": 1.0, "Mi": 2**-10}[quantity[-2:]] * int(quantity[:-2])


@pytest.mark.field_report("R01")
def test_large_models_are_not_killed_while_they_load() -> None:
    container = b.engine_container(b.tier(), b.sizing_plan(startup_budget_seconds=5400))
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 5400
    assert "initialDelaySeconds" not in container["livenessProbe"]
    assert "initialDelaySeconds" not in container["readinessProbe"]


@pytest.mark.field_report("R01")
def test_another_probe_period_keeps_the_startup_budget() -> None:
    tier = b.tier(overrides={"startupProbe": {"periodSeconds": 1}})
    startup = b.engine_container(tier, b.sizing_plan(startup_budget_seconds=5400))["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 5400


@pytest.mark.field_report("R01")
def test_startup_budget_set_too_short_is_kept_with_a_warning() -> None:
    tier = b.tier(overrides={"startupProbe": {"failureThreshold": 3}})
    assert b.engine_container(tier)["startupProbe"]["failureThreshold"] == 3
    assert "AggressiveStartup" in b.warnings(tier)


@pytest.mark.field_report("R03")
def test_readiness_asks_the_port_that_opens_once_the_model_is_served() -> None:
    probe = b.engine_container(b.tier())["readinessProbe"]
    assert probe["httpGet"] == {"path": "/health", "port": "http", "scheme": "HTTP"}


@pytest.mark.field_report("R04")
def test_drain_flag_is_rendered_from_0_18_on() -> None:
    old, new, unknown = ((0, 17, 1), (0, 18, 0), None)
    assert "--shutdown-timeout=120" in args(b.tier(engine=b.engine(version=new)), shutdown_timeout_seconds=120)
    assert "--shutdown-timeout=120" in args(b.tier(engine=b.engine(version=unknown)), shutdown_timeout_seconds=120)
    tier, plan = b.tier(engine=b.engine(version=old)), b.sizing_plan(shutdown_timeout_seconds=120)
    assert not any("shutdown-timeout" in argument for argument in engine_arguments(tier, plan))
    assert b.engine_container(tier, plan)["lifecycle"]["preStop"]["sleep"]["seconds"] >= 120
    assert "before 0.18" in b.warnings(tier, plan)


@pytest.mark.field_report("R05")
def test_grace_period_that_cuts_requests_is_raised_with_a_warning() -> None:
    plan = b.sizing_plan(shutdown_timeout_seconds=300, termination_grace_period_seconds=325)
    tier = b.tier(overrides={"terminationGracePeriodSeconds": 30})
    assert b.pod(tier, plan)["terminationGracePeriodSeconds"] == 325
    assert "GracePeriodRaised" in b.warnings(tier, plan)


@pytest.mark.field_report("R12")
def test_replicas_do_not_change_the_pod_template() -> None:
    rendered = b.render(b.tier(), intent="i")
    assert "replicas" not in rendered["spec"]
    for number in (2, 5):
        live = rendered | {"spec": rendered["spec"] | {"replicas": number}}
        assert settle(live, rendered) == rendered


@pytest.mark.field_report("R14")
def test_spread_without_a_selector_counts_pods_of_one_revision() -> None:
    stated = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    own = {**stated, "labelSelector": {"matchLabels": {"team": "a"}}}
    tier = b.tier(overrides={"topologySpreadConstraints": [stated, own]})
    filled, untouched = b.pod(tier)["topologySpreadConstraints"]
    assert filled["labelSelector"] == {"matchLabels": names.tier_selector("qwen", "reasoning")}
    assert filled["matchLabelKeys"] == ["controller-revision-hash"]
    assert untouched == own


@pytest.mark.field_report("R17")
@pytest.mark.parametrize(("pool", "tier"), [("vllm", "x"), ("v", "llm"), ("vllm-x", "pods")])
def test_no_service_sets_vllm_variables(pool: str, tier: str) -> None:
    identity = PoolIdentity(name=pool, namespace="llm", uid="u")
    manifests = render_tier(identity, b.tier(name=tier), b.sizing_plan()).manifests
    assert all(m["metadata"]["name"] != "vllm" for m in manifests if m["kind"] == "Service")
    assert b.pod(b.tier())["enableServiceLinks"] is False
    assert not {"VLLM_PORT", "VLLM_HOST_IP"} & b.environment(b.tier()).keys()


@pytest.mark.field_report("R20")
def test_liveness_is_patient_by_default() -> None:
    probe = b.engine_container(b.tier())["livenessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 30


@pytest.mark.field_report("R20")
def test_impatient_liveness_is_kept_with_a_warning() -> None:
    stated = {"periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 1}
    tier = b.tier(overrides={"livenessProbe": stated})
    assert stated.items() <= b.engine_container(tier)["livenessProbe"].items()
    assert "AggressiveLiveness" in b.warnings(tier)


@pytest.mark.field_report("R20")
def test_partial_probe_override_keeps_the_other_fields() -> None:
    default = b.engine_container(b.tier())["livenessProbe"]
    partial = b.engine_container(b.tier(overrides={"livenessProbe": {"periodSeconds": 15}}))["livenessProbe"]
    assert partial == {**default, "periodSeconds": 15}
    assert not b.warnings(b.tier(overrides={"livenessProbe": {"periodSeconds": 15}}))


def shm(tier: EffectiveTier) -> tuple[list[str], list[dict[str, Any]]]:
    """Volume names mounted at /dev/shm, and memory volumes."""
    mounted = [m["name"] for m in b.engine_container(tier)["volumeMounts"] if m["mountPath"].rstrip("/") == "/dev/shm"]
    return mounted, [v["emptyDir"] for v in b.pod(tier)["volumes"] if v.get("emptyDir", {}).get("medium") == "Memory"]


@pytest.mark.field_report("S16")
@pytest.mark.parametrize("stated", [None, "16Gi"])
def test_memory_limit_includes_shared_memory(stated: str | None) -> None:
    tier = b.tier(
        accelerator=b.accelerator(per_replica=4),
        overrides={"sharedMemory": stated} if stated else None,
    )
    (name,), (volume,) = shm(tier)
    assert name == "shm"
    assert volume["sizeLimit"] == (stated or "4Gi")
    base = gib("20Gi")
    assert gib(
        b.engine_container(tier, b.sizing_plan(tensor_parallel_size=4))["resources"]["limits"]["memory"]
    ) >= base + gib(volume["sizeLimit"])


@pytest.mark.field_report("S16")
def test_shared_memory_is_added_to_a_users_memory_limit() -> None:
    tier = b.tier(
        overrides={
            "sharedMemory": "16Gi",
            "containers": [{"name": "engine", "resources": {"limits": {"memory": "64Gi"}}}],
        }
    )
    assert b.engine_container(tier)["resources"]["limits"]["memory"] == "80Gi"


@pytest.mark.field_report("S16")
def test_users_own_shared_memory_mount_is_the_only_one() -> None:
    tier = b.tier(
        overrides={
            "volumes": [{"name": "mine", "emptyDir": {"medium": "Memory", "sizeLimit": "32Gi"}}],
            "containers": [
                {
                    "name": "engine",
                    "volumeMounts": [{"name": "mine", "mountPath": "/dev/shm/"}],
                    "resources": {"limits": {"memory": "64Gi"}},
                }
            ],
        }
    )
    mounted, memory = shm(tier)
    assert mounted == ["mine"]
    assert [volume["sizeLimit"] for volume in memory] == ["32Gi"]
    assert b.engine_container(tier)["resources"]["limits"]["memory"] == "96Gi"


@pytest.mark.field_report("S16")
def test_offloaded_kv_fits_into_shared_memory() -> None:
    _, (volume,) = shm(b.tier(kv_offload=KVOffloadSpec(cpu_memory="200Gi")))
    assert gib(volume["sizeLimit"]) > 200


@pytest.mark.field_report("S04", "S14")
def test_engine_limits_are_always_rendered() -> None:
    for tier in (b.tier(), b.chat_tier(), b.cpu_tier()):
        for flag in ("--max-num-seqs=", "--max-model-len=", "--max-num-batched-tokens="):
            assert sum(argument.startswith(flag) for argument in args(tier)) == 1


@pytest.mark.field_report("S09")
def test_kv_cache_dtype_can_differ_per_tier() -> None:
    deep = b.tier(engine=b.engine(kv_cache_dtype=KVCacheDType.BF16))
    chat = b.chat_tier()
    assert not any("fp8" in argument for argument in args(deep))
    assert "--kv-cache-dtype=fp8" in args(chat)


@pytest.mark.field_report("U01")
@pytest.mark.parametrize("version", [(0, 10, 0), (0, 33, 0), None])
def test_enable_reasoning_is_rejected_where_vllm_removed_it(version: tuple[int, int, int] | None) -> None:
    (problem,) = check_extra_arguments(["--enable-reasoning"], version)
    assert "removed in 0.10, model.parsers.reasoning is enough" in problem.message
    assert "--enable-reasoning" not in args(b.tier(engine=b.engine(version=version)))


@pytest.mark.field_report("U01")
def test_enable_reasoning_is_rendered_for_versions_that_need_it() -> None:
    assert "--enable-reasoning" in args(b.tier(engine=b.engine(version=(0, 8, 5))))
    assert "--enable-reasoning" not in args(b.tier(engine=b.engine(version=(0, 9, 0))))
    no_parser = b.tier(engine=b.engine(version=(0, 8, 5)), model=b.model(reasoning_parser=None))
    assert "--enable-reasoning" not in args(no_parser)
    assert check_extra_arguments(["--enable-reasoning"], (0, 8, 5))


@pytest.mark.field_report("U03")
def test_chat_turns_thinking_off_and_keeps_the_familys_parser_or_none() -> None:
    assert '--default-chat-template-kwargs={"enable_thinking":false}' in args(b.chat_tier())
    without = b.chat_tier(model=b.model(reasoning_parser=None))
    assert not any(argument.startswith("--reasoning-parser") for argument in args(without))
    assert '--default-chat-template-kwargs={"enable_thinking":false}' in args(without)


@pytest.mark.field_report("U06")
def test_tool_parser_and_auto_choice_come_together() -> None:
    both = [a for a in args(b.tier()) if "tool" in a]
    assert both == ["--enable-auto-tool-choice", "--tool-call-parser=hermes"]
    assert not [a for a in args(b.tier(model=b.model(tool_call_parser=None))) if "tool" in a]
    (problem,) = check_extra_arguments(["--enable-auto-tool-choice"], None)
    assert "model.parsers.toolCall" in problem.message


@pytest.mark.field_report("U08")
def test_no_parser_renders_no_flag() -> None:
    assert not any("reasoning-parser" in argument for argument in args(b.tier(model=b.model(reasoning_parser=None))))


@pytest.mark.field_report("U09")
def test_overriding_one_container_field_keeps_the_rest() -> None:
    override = {"name": "engine", "image": "registry.example/own:1", "env": [{"name": "A", "value": "b"}]}
    plain = b.engine_container(b.tier())
    merged = b.engine_container(b.tier(overrides={"containers": [override]}))
    assert merged == {**plain, "image": "registry.example/own:1", "env": [*plain["env"], {"name": "A", "value": "b"}]}


@pytest.mark.field_report("U17")
def test_managed_flags_are_rejected_in_any_spelling() -> None:
    given = ["--max-num-seq", "1024", "--gpu_memory_utilization=0.4", "--kv_cache-dtype", "auto"]
    assert [found.path for found in check_extra_arguments(given, None, path="")] == ["[0]", "[2]", "[3]"]
    for spelling in ("--device-memory-utilization=0.4", "--disable-prefix-caching", "--no-enable-prefix-caching"):
        assert check_extra_arguments([spelling], None)
    assert "ambiguous" in check_extra_arguments(["--max-num", "4"], None)[0].message
    assert check_extra_arguments(["--config", "/etc/vllm.yaml"], None)


@pytest.mark.field_report("M07")
def test_disabled_statistics_are_rejected_on_a_scaled_tier() -> None:
    for given in (["--disable-log-stats"], ["--disable_log_stats"]):
        assert "StatsDisabled" in check_extra_arguments(given, None, scaling=True)[0].message
        assert not check_extra_arguments(given, None)
    assert check_extra_arguments(["--foo --disable-log-stats"], None)


RESTRICTED_VOLUMES = {"configMap", "downwardAPI", "emptyDir", "persistentVolumeClaim", "secret"}


def restricted(pod: dict[str, Any]) -> list[str]:
    """What the restricted Pod Security profile would refuse."""
    found = [field for field in ("hostNetwork", "hostPID", "hostIPC") if pod.get(field)]
    context = pod.get("securityContext", {})
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        own = container.get("securityContext", {})
        effective = context | own
        checks = {
            "privileged": not own.get("privileged"),
            "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
            "capabilities": own.get("capabilities") == {"drop": ["ALL"]},
            "runAsNonRoot": effective.get("runAsNonRoot") is True,
            "runAsUser": effective.get("runAsUser") != 0,
            "seccompProfile": effective.get("seccompProfile", {}).get("type") in ("RuntimeDefault", "Localhost"),
            "hostPort": not any("hostPort" in port for port in container.get("ports", ())),
        }
        found += [f"{container['name']}: {name}" for name, good in checks.items() if not good]
    kinds = {kind for volume in pod["volumes"] for kind in volume.keys() - {"name"}}
    return found + sorted(kinds - RESTRICTED_VOLUMES)


@pytest.mark.field_report("X01")
@pytest.mark.parametrize(
    "tier",
    [
        b.tier(accelerator=b.accelerator(per_replica=4)),
        b.cpu_tier(),
        b.tier(engine=b.engine(chat_template=ChatTemplate(inline="{{ x }}"))),
        b.tier(
            overrides={
                "containers": [{"name": "helper", "image": "h:1"}],
                "initContainers": [{"name": "fetch", "image": "f:1"}],
            }
        ),
    ],
    ids=["four devices", "cpu", "chat template", "added containers"],
)
def test_pods_pass_the_restricted_profile(tier: EffectiveTier) -> None:
    assert restricted(b.pod(tier)) == []


@pytest.mark.field_report("X02")
def test_no_development_endpoints_are_opened() -> None:
    assert "VLLM_SERVER_DEV_MODE" not in b.environment(b.tier())


@pytest.mark.field_report("X04")
def test_service_account_of_the_pool_has_no_rights_and_no_token() -> None:
    kinds = {m["kind"] for m in render_tier(b.pool_identity(), b.tier(), b.sizing_plan()).manifests}
    assert not {kind for kind in kinds if "Role" in kind}
    assert b.pod(b.tier())["automountServiceAccountToken"] is False


@pytest.mark.field_report("X05")
@pytest.mark.parametrize(
    "stated",
    [
        {"volumes": [{"name": "h", "hostPath": {"path": "/"}}]},
        {"containers": [{"name": "engine", "securityContext": {"privileged": True}}]},
        {"containers": [{"name": "engine", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]},
        {"containers": [{"name": "engine", "securityContext": {"allowPrivilegeEscalation": True}}]},
        {"hostNetwork": True},
        {"hostPID": True},
    ],
    ids=str,
)
def test_privileges_cannot_be_set(stated: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"Extra inputs|exactly one"):
        PodOverrides.model_validate(stated)


@pytest.mark.field_report("X07")
def test_every_engine_directory_is_on_a_writable_volume() -> None:
    tier = b.tier(overrides={"securityContext": {"runAsUser": 1000800000, "runAsNonRoot": True}})
    container, found = b.engine_container(tier), b.environment(tier)
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    writable = [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
    required = {"HOME", "HF_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR"}
    assert required | {"TORCHINDUCTOR_CACHE_DIR", "TMPDIR"} <= DIRECTORIES.keys()
    for name in DIRECTORIES:
        assert any(f"{found[name]}/".startswith(f"{path}/") for path in writable), name


@pytest.mark.field_report("X07")
def test_users_directory_wins() -> None:
    tier = b.tier(
        overrides={
            "volumes": [{"name": "data", "emptyDir": {}}],
            "containers": [
                {
                    "name": "engine",
                    "env": [{"name": "HF_HOME", "value": "/data/hf"}],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
        }
    )
    assert b.environment(tier)["HF_HOME"] == "/data/hf"


@pytest.mark.field_report("X09")
def test_secrets_are_referenced_never_copied() -> None:
    tier = b.tier(engine=b.engine(api_key_secret_ref=SecretKeyRef(name="api", key="k")))
    literal = b.tier(overrides={"containers": [{"name": "engine", "env": [{"name": "A", "value": "EXAMPLE-SECRET"}]}]})
    assert b.environment(tier)["VLLM_API_KEY"] == {"secretKeyRef": {"name": "api", "key": "k", "optional": False}}
    workload = b.render(literal, intent="i")
    assert "EXAMPLE-SECRET" not in str(workload["metadata"])
    assert "EXAMPLE-SECRET" not in str(workload["spec"]["template"]["metadata"])


@pytest.mark.field_report("K20")
def test_annotations_stay_below_the_api_servers_limit() -> None:
    inline = "{{ x }}" * 9000
    tier = b.tier(
        engine=b.engine(chat_template=ChatTemplate(inline=inline)),
        overrides={"annotations": {f"k{n}": "x" * 4000 for n in range(32)}},
    )
    workload = b.render(tier, intent="i")
    for meta in (workload["metadata"], workload["spec"]["template"]["metadata"]):
        size = sum(len(k.encode()) + len(v.encode()) for k, v in meta["annotations"].items())
        assert size < 256 * 1024


@pytest.mark.field_report("K20")
def test_template_too_large_for_the_annotation_is_rejected() -> None:
    assert check_chat_template(ChatTemplate(inline="x" * 65536)) is None
    assert check_chat_template(ChatTemplate(config_map_ref=ConfigMapKeyRef(name="t", key="k"))) is None
    assert "configMapRef" in (check_chat_template(ChatTemplate(inline="\N{BRAIN}" * 65536)) or "")
