"""The main job on real parts: a resource becomes vLLM servers that answer, and what breaks is explained."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from demo import stack
from demo.forward import forwarded
from engine.client import Reply, stream_chat
from reasoningpool.api.conditions import FAILURE_REASONS
from reasoningpool.api.resource import parse_pool
from reasoningpool.planning.offline import offline_pool
from reasoningpool.resolution.resolve import ResolutionSettings
from reasoningpool.sizing import SizingPlan
from support.pools import changed

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.core import Cluster

pytestmark = [pytest.mark.node, pytest.mark.engine, pytest.mark.timeout(1200)]

EXAMPLE = yaml.safe_load((stack.ROOT / "examples" / "reasoningpool.yaml").read_text())
ANSWER_SECONDS = 600
OBJECTS = "statefulsets,services,poddisruptionbudgets,serviceaccounts,reasoningpools"


def apply(cluster: Cluster, namespace: str, pool: dict[str, Any]) -> None:
    cluster.kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(pool))


def pool_of(cluster: Cluster, namespace: str) -> dict[str, Any]:
    return cluster.get("-n", namespace, "reasoningpool", EXAMPLE["metadata"]["name"])


def reason(cluster: Cluster, namespace: str) -> str:
    return str(pool_of(cluster, namespace).get("status", {}).get("reason", ""))


def describe(cluster: Cluster, namespace: str) -> str:
    pods = cluster.kubectl("-n", namespace, "get", "pods", "-o", "wide").stdout
    return pods + cluster.kubectl("-n", namespace, "describe", "reasoningpools").stdout


def ask(cluster: Cluster, namespace: str, tier: str, question: str, **body: Any) -> Reply:
    with forwarded(cluster, namespace, f"tiny-{tier}") as url:
        return stream_chat(url, "tiny", question, temperature=0, **body)


def test_example_makes_two_servers_that_answer_and_leaves_nothing_behind(
    operated: Cluster, namespace: str, model: str, wait_until: Callable[..., None]
) -> None:
    apply(operated, namespace, EXAMPLE)
    wait_until(lambda: reason(operated, namespace) == "Ready", ANSWER_SECONDS, lambda: describe(operated, namespace))

    thought = ask(operated, namespace, "reasoning", "What is two plus two?", max_tokens=200)
    assert thought.thinking.strip()
    assert thought.answer.strip()
    plain = ask(operated, namespace, "chat", "What is the capital of France?", max_tokens=200)
    assert not plain.thinking.strip(), "a Chat tier has thinking switched off"
    assert plain.answer.strip()

    _real_pools_agree_with_the_plan(operated, namespace, wait_until)
    shown = operated.kubectl("-n", namespace, "get", "rp").stdout
    assert "2/2" in shown
    assert "Ready" in shown

    _applying_again_writes_nothing(operated, namespace)
    _deletion_lets_a_running_request_finish(operated, namespace, wait_until)


def sizing_verified(cluster: Cluster, namespace: str) -> dict[str, Any]:
    conditions = pool_of(cluster, namespace).get("status", {}).get("conditions", ())
    return next((c for c in conditions if c["type"] == "SizingVerified"), {})


def _real_pools_agree_with_the_plan(cluster: Cluster, namespace: str, wait_until: Callable[..., None]) -> None:
    wait_until(
        lambda: sizing_verified(cluster, namespace).get("status") == "True", 30, lambda: describe(cluster, namespace)
    )
    assert sizing_verified(cluster, namespace)["reason"] == "Verified"
    for tier in pool_of(cluster, namespace)["status"]["tiers"]:
        measured = tier["sizing"]["verified"]
        assert measured["usableKVTokens"] == measured["plannedUsableKVTokens"] == 32_640, "255 blocks of 128 tokens"


def _versions(cluster: Cluster, namespace: str) -> dict[str, str]:
    items = cluster.get("-n", namespace, OBJECTS)["items"]
    return {f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for item in items}


def _applying_again_writes_nothing(cluster: Cluster, namespace: str) -> None:
    before = _versions(cluster, namespace)
    for _ in range(10):
        apply(cluster, namespace, EXAMPLE)
    assert _versions(cluster, namespace) == before
    pool = pool_of(cluster, namespace)
    assert pool["metadata"].get("finalizers", []) == []
    assert set(pool["metadata"].get("annotations", {})) == {"kubectl.kubernetes.io/last-applied-configuration"}
    difference = cluster.kubectl("-n", namespace, "diff", "-f", "-", input=json.dumps(EXAMPLE), check=False)
    assert (difference.returncode, difference.stdout) == (0, "")


def _deletion_lets_a_running_request_finish(cluster: Cluster, namespace: str, wait_until: Callable[..., None]) -> None:
    replies: list[Reply] = []
    started = threading.Event()
    # Through the pod and not the Service: a terminating pod is no endpoint any more.
    with forwarded(cluster, namespace, "tiny-reasoning") as url:

        def run() -> None:
            words = {"max_tokens": 900, "min_tokens": 900, "ignore_eos": True, "thinking_token_budget": 500}
            replies.append(stream_chat(url, "tiny", "Tell a story.", on_delta=lambda *_: started.set(), **words))

        request = threading.Thread(target=run)
        request.start()
        assert started.wait(60)
        cluster.kubectl("-n", namespace, "delete", "reasoningpool", "tiny", "--wait=false")
        request.join(300)
    assert replies, "the request was cut"
    assert replies[0].finish_reason == "length"
    assert replies[0].usage["completion_tokens"] == 900
    wait_until(
        lambda: not [k for k in _versions(cluster, namespace) if not k.endswith("/default")],
        300,
        lambda: str(_versions(cluster, namespace)),
    )
    wait_until(lambda: not cluster.get("-n", namespace, "pods")["items"], 300)
    assert cluster.get("-n", namespace, "pvc", "tiny-model")["metadata"]["name"] == "tiny-model"


ONE_TIER = changed(EXAMPLE, "spec.tiers", EXAMPLE["spec"]["tiers"][:1])
HALF_LAYERS = EXAMPLE["spec"]["model"]["configJSON"].replace('"num_hidden_layers": 4', '"num_hidden_layers": 1')

QUIET_SECONDS = 60


def test_plan_made_wrong_is_corrected_by_the_real_pool_with_one_roll(
    operated: Cluster, namespace: str, model: str, wait_until: Callable[..., None]
) -> None:
    """Half the layers: half the bytes per token, so twice the tokens in the plan of what the engine really has."""
    wrong = changed(
        ONE_TIER,
        "spec.model.configJSON",
        EXAMPLE["spec"]["model"]["configJSON"].replace('"num_hidden_layers": 4', '"num_hidden_layers": 2'),
    )
    right, first = derived_limit(ONE_TIER), derived_limit(wrong)
    assert right < first
    apply(operated, namespace, wrong)

    def corrected() -> bool:
        verified = sizing_verified(operated, namespace)
        return (verified.get("reason"), reason(operated, namespace)) == ("Corrected", "Ready")

    wait_until(corrected, ANSWER_SECONDS, lambda: describe(operated, namespace))
    (tier,) = pool_of(operated, namespace)["status"]["tiers"]
    (pod,) = operated.get("-n", namespace, "pods")["items"]
    assert f"--max-num-seqs={right}" in pod["spec"]["containers"][0]["args"]
    assert tier["sizing"]["maxNumSeqs"] == tier["correction"]["maxNumSeqs"] == right
    assert (tier["correction"]["plannedMaxNumSeqs"], tier["correction"]["usableKVTokens"]) == (first, 32_640)
    assert f"--max-num-seqs {first} -> {right}" in tier["rollout"]["change"]
    assert "KV pool holds 32,640 tokens" in tier["rollout"]["change"]
    stateful_set = operated.get("-n", namespace, "statefulset", "tiny-reasoning")
    assert stateful_set["metadata"]["generation"] == 2, "made once, rolled once"

    # Nothing more happens, not even when the operator starts anew and knows nothing but the status.
    before = _versions(operated, namespace)
    operated.kubectl("-n", stack.OPERATOR_NAMESPACE, "rollout", "restart", "deployment")
    operated.kubectl("-n", stack.OPERATOR_NAMESPACE, "rollout", "status", "deployment", "--timeout=120s", timeout=130)
    ended = time.monotonic() + QUIET_SECONDS
    wait_until(lambda: time.monotonic() > ended or _versions(operated, namespace) != before, QUIET_SECONDS + 10)
    assert _versions(operated, namespace) == before
    operated.kubectl("-n", namespace, "delete", "rp", "tiny")


def derived_limit(pool: dict[str, Any]) -> int:
    """What the plan derives for the pool's one tier, without a cluster."""
    (tier,) = offline_pool(parse_pool(pool), ResolutionSettings()).tiers
    assert isinstance(tier.sizing, SizingPlan)
    return tier.sizing.max_num_seqs


SMALL_ENGINE = {"name": "engine", "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}}


def pool_with_tier(tier: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """The example with one tier, changed."""
    pool = json.loads(json.dumps(ONE_TIER))
    pool["spec"] |= spec
    pool["spec"]["tiers"][0] |= tier
    return pool


BROKEN: dict[str, tuple[dict[str, Any], str, str]] = {
    "image does not exist": (
        changed(ONE_TIER, "spec.engine.image", "reasoningpool.local/none:0.32.0"), "ImagePullFailed", "engine.image",
    ),
    "model does not exist": (
        changed(
            ONE_TIER, "spec.model.source", {"persistentVolumeClaim": {"claimName": "tiny-model", "path": "nowhere"}}
        ),
        "ModelNotFound",
        "model.source",
    ),
    "pool too small for the real model": (
        changed(
            changed(changed(ONE_TIER, "spec.model.configJSON", HALF_LAYERS), "spec.engine.kvCacheMemory", "1Mi"),
            "spec.tiers.0.maxNumSeqs",
            1,
        ),
        "KVCacheTooSmall",
        "kvCacheMemory",
    ),
    "unknown parser": (changed(ONE_TIER, "spec.model.parsers", {"reasoning": "typo"}), "BadArgument", "parsers"),
    "secret missing": (
        changed(ONE_TIER, "spec.engine.apiKeySecretRef", {"name": "nokey", "key": "key"}), "ConfigMissing", "nokey",
    ),
    "too few GPUs": (
        pool_with_tier(
            {"replicas": 3, "podOverrides": {"sharedMemory": "64Mi", "containers": [SMALL_ENGINE]}},
            accelerator={"custom": {"memory": "80Gi", "computeCapability": "9.0"}, "perReplica": 4},
        ),
        "WaitingForGPU",
        "nvidia.com/gpu",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_broken_engine_is_explained_by_get_and_describe_alone(
    operated: Cluster, namespace: str, model: str, wait_until: Callable[..., None], case: str
) -> None:
    body, expected, advice = BROKEN[case]
    apply(operated, namespace, body)
    wait_until(lambda: reason(operated, namespace) in FAILURE_REASONS, 180, lambda: describe(operated, namespace))
    # A first look may come before the engine's last words; a log is read again after half a minute.
    wait_until(lambda: reason(operated, namespace) == expected, 120, lambda: describe(operated, namespace))
    assert expected in operated.kubectl("-n", namespace, "get", "rp").stdout
    described = operated.kubectl("-n", namespace, "describe", "rp").stdout
    assert advice in described
    events = described.partition("\nEvents:")[2]
    assert expected in events
    operated.kubectl("-n", namespace, "delete", "rp", "tiny")
