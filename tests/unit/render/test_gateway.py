"""The objects of a Standalone gateway."""

from __future__ import annotations

from typing import Any

import pytest

from reasoningpool.api.resource import parse_pool
from reasoningpool.planning.offline import offline_pool
from reasoningpool.resolution.resolve import ResolutionSettings
from support.pools import chat_tier, pool, tier


def manifests(**changes: Any) -> dict[tuple[str, str], dict[str, Any]]:
    body = pool(tiers=[tier(), chat_tier()], gateway={"mode": "Standalone"}) | changes
    found = offline_pool(parse_pool(body), ResolutionSettings()).manifests
    return {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in found}


@pytest.fixture
def pod() -> dict[str, Any]:
    return manifests()["Deployment", "p-gateway"]["spec"]["template"]


def test_pods_keep_the_restricted_profile(pod) -> None:
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True,
    }  # fmt: skip


def test_a_rollout_takes_no_pod_away_before_a_new_one_serves() -> None:
    spec = manifests()["Deployment", "p-gateway"]["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


def test_the_grace_period_outlasts_the_longest_request_of_any_tier() -> None:
    found = manifests()
    grace = found["Deployment", "p-gateway"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    (container,) = found["Deployment", "p-gateway"]["spec"]["template"]["spec"]["containers"]
    settle, longest = map(int, container["lifecycle"]["preStop"]["exec"]["command"][-2:])
    engine = found["StatefulSet", "p-reasoning"]["spec"]["template"]["spec"]["containers"][0]
    (timeout,) = (int(text.partition("=")[2]) for text in engine["args"] if text.startswith("--shutdown-timeout="))
    assert longest >= timeout
    assert grace > settle + longest


def test_pods_are_told_apart_from_engines_by_their_labels(pod) -> None:
    """What selects engines (Services, the operator's watch of pods) must not find Envoy."""
    labels = pod["metadata"]["labels"]
    assert "reasoningpool.io/pool" not in labels
    assert labels.get("app.kubernetes.io/managed-by") is None
    service = manifests()["Service", "p-gateway"]["spec"]
    assert service["selector"].items() <= labels.items()


def test_envoy_finds_only_pods_that_are_ready_and_routable() -> None:
    spec = manifests()["Service", "p-chat-endpoints"]["spec"]
    assert spec["clusterIP"] == "None"
    assert "publishNotReadyAddresses" not in spec
    assert spec["selector"]["reasoningpool.io/routable"] == "true"


def test_readiness_goes_by_health_and_a_drain_is_no_reason_to_be_killed(pod) -> None:
    (container,) = pod["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert "httpGet" not in container["livenessProbe"]
