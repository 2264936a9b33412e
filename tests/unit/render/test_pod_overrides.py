"""The escape hatch: every field reaches the pod, merged by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reasoningpool.api import names
from reasoningpool.api.pod_overrides import PodOverrides
from reasoningpool.api.spec_model import SecretKeyRef
from reasoningpool.render.pod.pod_overrides import check_pod_overrides
from unit.render import builders as b

Pod = dict[str, Any]


def engine(pod: Pod) -> dict[str, Any]:
    return next(c for c in pod["spec"]["containers"] if c["name"] == "engine")


def mount(pod: Pod, path: str) -> dict[str, Any]:
    (found,) = [m for m in engine(pod)["volumeMounts"] if m["mountPath"] == path]
    return found


ANTI_AFFINITY = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "host"}]}}
SPREAD = {
    "maxSkew": 2,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"a": "b"}},
}

# One row per field of "Escape hatch": what is stated, where it appears, what it is there.
FIELDS: list[tuple[str, dict[str, Any], Callable[[Pod], Any], Any]] = [
    (
        "cpu and extended resources",
        {
            "containers": [
                {"name": "engine", "resources": {"requests": {"cpu": "3500m"}, "limits": {"cpu": "8", "rdma/hca": 1}}}
            ]
        },
        lambda p: (engine(p)["resources"]["requests"]["cpu"], engine(p)["resources"]["limits"]["rdma/hca"]),
        ("3500m", "1"),
    ),
    (
        "env",
        {"containers": [{"name": "engine", "env": [{"name": "A", "value": "b"}]}]},
        lambda p: engine(p)["env"][-1],
        {"name": "A", "value": "b"},
    ),
    (
        "env from a field",
        {
            "containers": [
                {"name": "engine", "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}
            ]
        },
        lambda p: engine(p)["env"][-1],
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ),
    (
        "envFrom",
        {
            "containers": [
                {"name": "engine", "envFrom": [{"secretRef": {"name": "s"}}, {"configMapRef": {"name": "c"}}]}
            ]
        },
        lambda p: engine(p)["envFrom"],
        [{"secretRef": {"name": "s"}}, {"configMapRef": {"name": "c"}}],
    ),
    (
        "tolerations",
        {"tolerations": [{"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}]},
        lambda p: [t["key"] for t in p["spec"]["tolerations"]],
        ["nvidia.com/gpu", "spot"],
    ),
    ("nodeSelector", {"nodeSelector": {"pool": "gpu"}}, lambda p: p["spec"]["nodeSelector"]["pool"], "gpu"),
    (
        "affinity",
        {"affinity": ANTI_AFFINITY},
        lambda p: p["spec"]["affinity"],
        ANTI_AFFINITY,
    ),
    (
        "topologySpreadConstraints",
        {"topologySpreadConstraints": [SPREAD]},
        lambda p: p["spec"]["topologySpreadConstraints"],
        [SPREAD],
    ),
    (
        "volume and mount",
        {
            "volumes": [{"name": "certs", "secret": {"secretName": "tls"}}],
            "containers": [
                {"name": "engine", "volumeMounts": [{"name": "certs", "mountPath": "/certs", "readOnly": True}]}
            ],
        },
        lambda p: (p["spec"]["volumes"][-1]["secret"]["secretName"], mount(p, "/certs")),
        ("tls", {"name": "certs", "mountPath": "/certs", "readOnly": True}),
    ),
    (
        "startup probe",
        {"startupProbe": {"failureThreshold": 900}},
        lambda p: engine(p)["startupProbe"]["failureThreshold"],
        900,
    ),
    (
        "readiness probe",
        {"readinessProbe": {"periodSeconds": 2, "successThreshold": 3}},
        lambda p: (engine(p)["readinessProbe"]["periodSeconds"], engine(p)["readinessProbe"]["successThreshold"]),
        (2, 3),
    ),
    (
        "liveness probe",
        {"livenessProbe": {"initialDelaySeconds": 300, "timeoutSeconds": 20}},
        lambda p: (engine(p)["livenessProbe"]["initialDelaySeconds"], engine(p)["livenessProbe"]["timeoutSeconds"]),
        (300, 20),
    ),
    (
        "preStopSeconds",
        {"preStopSeconds": 30},
        lambda p: engine(p)["lifecycle"]["preStop"]["sleep"]["seconds"],
        30,
    ),
    (
        "terminationGracePeriodSeconds",
        {"terminationGracePeriodSeconds": 3600},
        lambda p: p["spec"]["terminationGracePeriodSeconds"],
        3600,
    ),
    (
        "pod securityContext",
        {"securityContext": {"runAsUser": 1234, "fsGroup": 5, "supplementalGroups": [6]}},
        lambda p: [
            p["spec"]["securityContext"][k] for k in ("runAsUser", "fsGroup", "supplementalGroups", "runAsNonRoot")
        ],
        [1234, 5, [6], True],
    ),
    (
        "container securityContext",
        {"containers": [{"name": "engine", "securityContext": {"readOnlyRootFilesystem": False, "runAsUser": 7}}]},
        lambda p: engine(p)["securityContext"],
        {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": False,
            "runAsUser": 7,
        },
    ),
    (
        "initContainers",
        {"initContainers": [{"name": "fetch", "image": "f:1", "command": ["sh"], "args": ["-c", "x"]}]},
        lambda p: [(c["name"], c["command"], c["args"]) for c in p["spec"]["initContainers"]],
        [("fetch", ["sh"], ["-c", "x"])],
    ),
    (
        "native sidecar",
        {"initContainers": [{"name": "sync", "image": "s:1", "restartPolicy": "Always"}]},
        lambda p: p["spec"]["initContainers"][0]["restartPolicy"],
        "Always",
    ),
    (
        "sidecar",
        {"containers": [{"name": "queue", "image": "q:1"}]},
        lambda p: [c["name"] for c in p["spec"]["containers"]],
        ["engine", "queue"],
    ),
    ("image", {"containers": [{"name": "engine", "image": "own:1"}]}, lambda p: engine(p)["image"], "own:1"),
    (
        "ports",
        {"containers": [{"name": "engine", "ports": [{"name": "zmq", "containerPort": 5557}]}]},
        lambda p: [port["containerPort"] for port in engine(p)["ports"]],
        [8000, 5557],
    ),
    ("serviceAccountName", {"serviceAccountName": "mine"}, lambda p: p["spec"]["serviceAccountName"], "mine"),
    (
        "automountServiceAccountToken",
        {"automountServiceAccountToken": True},
        lambda p: p["spec"]["automountServiceAccountToken"],
        True,
    ),
    ("runtimeClassName", {"runtimeClassName": "nvidia"}, lambda p: p["spec"]["runtimeClassName"], "nvidia"),
    ("priorityClassName", {"priorityClassName": "high"}, lambda p: p["spec"]["priorityClassName"], "high"),
    ("schedulerName", {"schedulerName": "volcano"}, lambda p: p["spec"]["schedulerName"], "volcano"),
    (
        "labels",
        {"labels": {"sidecar.istio.io/inject": "false"}},
        lambda p: p["metadata"]["labels"]["sidecar.istio.io/inject"],
        "false",
    ),
    (
        "annotations",
        {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}},
        lambda p: p["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"],
        "false",
    ),
    (
        "sharedMemory",
        {"sharedMemory": "20Gi"},
        lambda p: next(v for v in p["spec"]["volumes"] if v["name"] == "shm")["emptyDir"]["sizeLimit"],
        "20Gi",
    ),
]


@pytest.mark.field_report("U11")
@pytest.mark.parametrize(("stated", "where", "expected"), [f[1:] for f in FIELDS], ids=[f[0] for f in FIELDS])
def test_every_override_reaches_the_pod(stated: dict[str, Any], where: Callable[[Pod], Any], expected: Any) -> None:
    template = b.render(b.tier(overrides=stated))["spec"]["template"]
    assert where(template) == expected


@pytest.mark.field_report("U11")
def test_table_covers_every_override_field() -> None:
    stated = {field for _, overrides, _, _ in FIELDS for field in overrides}
    assert stated == {str(field.alias) for field in PodOverrides.model_fields.values()}


@pytest.mark.parametrize(("stated", "where", "expected"), [f[1:] for f in FIELDS], ids=[f[0] for f in FIELDS])
def test_no_field_disturbs_the_engines_command(
    stated: dict[str, Any], where: Callable[[Pod], Any], expected: Any
) -> None:
    plain, changed = b.engine_container(b.tier()), b.engine_container(b.tier(overrides=stated))
    assert (changed["command"], changed["args"]) == (plain["command"], plain["args"])


def test_a_users_variable_wins_in_place() -> None:
    before = [v["name"] for v in b.engine_container(b.tier())["env"]]
    tier = b.tier(overrides={"containers": [{"name": "engine", "env": [{"name": "HF_HOME", "value": "/data"}]}]})
    assert b.environment(tier)["HF_HOME"] == "/data"
    assert [v["name"] for v in b.engine_container(tier)["env"]] == before


def test_a_variable_with_a_secret_of_its_own_field_stays_and_warns() -> None:
    tier = b.tier(
        engine=b.engine(api_key_secret_ref=SecretKeyRef(name="api", key="k")),
        overrides={"containers": [{"name": "engine", "env": [{"name": "VLLM_API_KEY", "value": "x"}]}]},
    )
    assert "secretKeyRef" in b.environment(tier)["VLLM_API_KEY"]
    assert "engine.apiKeySecretRef" in b.warnings(tier)


@pytest.mark.parametrize("key", [names.LABEL_POOL, names.LABEL_TIER, names.LABEL_ROUTABLE, names.LABEL_MANAGED_BY])
def test_labels_that_selectors_rely_on_stay_with_a_warning(key: str) -> None:
    tier = b.tier(overrides={"labels": {key: "mine", "app.kubernetes.io/part-of": "shop"}})
    labels = b.render(tier)["spec"]["template"]["metadata"]["labels"]
    assert labels[key] != "mine"
    assert labels["app.kubernetes.io/part-of"] == "shop"
    assert f"{key} is set by the operator" in b.warnings(tier)


def test_the_revision_annotation_cannot_be_overridden() -> None:
    tier = b.tier(overrides={"annotations": {names.ANNOTATION_REVISION: "mine"}})
    assert b.render(tier)["spec"]["template"]["metadata"]["annotations"][names.ANNOTATION_REVISION] != "mine"


def test_users_volume_replaces_the_generated_one_of_that_name() -> None:
    tier = b.tier(overrides={"volumes": [{"name": "cache", "persistentVolumeClaim": {"claimName": "fast"}}]})
    (cache,) = [v for v in b.pod(tier)["volumes"] if v["name"] == "cache"]
    assert cache == {"name": "cache", "persistentVolumeClaim": {"claimName": "fast"}}


def test_a_volume_nothing_mounts_is_left_out() -> None:
    tier = b.tier(
        overrides={
            "volumes": [{"name": "big", "emptyDir": {}}],
            "containers": [{"name": "engine", "volumeMounts": [{"name": "big", "mountPath": "/cache/"}]}],
        }
    )
    assert {v["name"] for v in b.pod(tier)["volumes"]} == {"home", "tmp", "shm", "big"}


def test_a_sidecar_may_mount_the_engines_volumes() -> None:
    helper = {"name": "helper", "image": "h:1", "volumeMounts": [{"name": "cache", "mountPath": "/c"}]}
    engine = {"name": "engine", "volumeMounts": [{"name": "own", "mountPath": "/cache"}]}
    tier = b.tier(overrides={"volumes": [{"name": "own", "emptyDir": {}}], "containers": [engine, helper]})
    assert "cache" in {v["name"] for v in b.pod(tier)["volumes"]}


def test_a_sidecar_gets_no_privileges() -> None:
    tier = b.tier(overrides={"containers": [{"name": "helper", "image": "h:1", "securityContext": {"runAsUser": 9}}]})
    helper = b.pod(tier)["containers"][1]
    assert helper["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsUser": 9,
    }


@pytest.mark.parametrize(
    ("stated", "path", "words"),
    [
        ({"containers": [{"name": "engine", "command": ["sh"]}]}, "containers[0].command", "vllm serve"),
        ({"containers": [{"name": "engine", "args": ["x"]}]}, "containers[0].args", "engine.extraArgs"),
        ({"containers": [{"name": "helper"}]}, "containers[0].image", "required"),
        (
            {"containers": [{"name": "h", "image": "h:1", "restartPolicy": "Always"}]},
            "containers[0].restartPolicy",
            "initContainers",
        ),
        ({"initContainers": [{"name": "fetch"}]}, "initContainers[0].image", "required"),
        ({"initContainers": [{"name": "engine", "image": "e:1"}]}, "initContainers[0].name", "another container"),
        ({"livenessProbe": {"successThreshold": 2}}, "livenessProbe.successThreshold", "must be 1"),
        ({"startupProbe": {"successThreshold": 2}}, "startupProbe.successThreshold", "must be 1"),
        (
            {
                "containers": [
                    {"name": "engine", "volumeMounts": [{"name": "tmp", "mountPath": "/v", "subPath": "a/../.."}]}
                ]
            },
            "containers[0].volumeMounts[0].subPath",
            "..",
        ),
        (
            {"containers": [{"name": "engine", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
            "containers[0].volumeMounts[0].name",
            "no volume",
        ),
    ],
)
def test_what_cannot_be_honoured_is_found(stated: dict[str, Any], path: str, words: str) -> None:
    (problem,) = check_pod_overrides(PodOverrides.model_validate(stated))
    assert problem.path == path
    assert words in problem.message


def test_a_refused_command_never_reaches_the_pod() -> None:
    tier = b.tier(overrides={"containers": [{"name": "engine", "command": ["sh"], "args": ["-c", "x"]}]})
    assert b.engine_container(tier)["command"] == ["vllm", "serve"]


def test_mounts_of_the_operators_own_volumes_are_fine() -> None:
    stated = {"containers": [{"name": "engine", "volumeMounts": [{"name": "cache", "mountPath": "/extra"}]}]}
    assert check_pod_overrides(PodOverrides.model_validate(stated)) == ()
