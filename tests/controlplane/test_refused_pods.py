"""Pods that the API server refuses: the pool says why in the server's own words, and stops once it is mended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from controlplane.operator_support import Cluster, eventually, running
from support.pools import pool, tier
from support.rights import limited_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cluster.core import Cluster as Kubernetes
    from support.apiserver import ApiServer

SOON = 60.0
QUOTA = {"kind": "ResourceQuota", "spec": {"hard": {"requests.nvidia.com/gpu": "0"}}}
NO_LIMITS = {"kind": "ResourceQuota", "spec": {"hard": {"limits.cpu": "100"}}}
LIMIT_RANGE = {"kind": "LimitRange", "spec": {"limits": [{"type": "Container", "max": {"memory": "1Gi"}}]}}
PRIORITY = {"podOverrides": {"priorityClassName": "no-such-class"}}
RUNTIME = {"podOverrides": {"runtimeClassName": "no-such-runtime"}}
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
ROOT = {"podOverrides": {"securityContext": {"runAsNonRoot": False, "runAsUser": 0}}}

# namespace labels, an object in it, the tier, what the API server says, what the advice names
CAUSES: dict[str, tuple[dict[str, str], dict[str, Any] | None, dict[str, Any], str, str]] = {
    "quota": ({}, QUOTA, {}, "exceeded quota: limit, requested: requests.nvidia.com/gpu=1", "raise quota"),
    "quota-of-limits": ({}, NO_LIMITS, {}, "must specify limits.cpu for: engine", "quota limit requires a value"),
    "limit-range": ({}, LIMIT_RANGE, {}, "maximum memory usage per Container is 1Gi", "change the LimitRange"),
    "priority-class": ({}, None, PRIORITY, "no PriorityClass with name no-such-class", "create the PriorityClass no-s"),
    "runtime-class": ({}, None, RUNTIME, 'RuntimeClass "no-such-runtime" not found', "install that RuntimeClass"),
    "pod-security": (RESTRICTED, None, ROOT, 'violates PodSecurity "restricted', "Pod Security level restricted"),
}


@pytest.fixture(scope="module")
def namespaces(crd_cluster: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A namespace for each cause, all served by one operator with the rights that the manifests grant."""
    made = {cause: crd_cluster.new_namespace(cause, labels) for cause, (labels, *_) in CAUSES.items()}
    folder = tmp_path_factory.mktemp("refused")
    first, *others = made.values()
    flags = [part for name in others for part in ("--namespace", name)]
    limited, _ = limited_kubeconfig(crd_cluster, folder)
    with running(limited, first, folder / "log", "--no-leader-election", *flags) as operator:
        operator.wait_leading()
        yield made
        assert "forbidden" not in operator.text().replace("is forbidden", "").lower()


def message(cluster: Cluster) -> str:
    """What `kubectl describe` shows of the Ready condition."""
    status = (cluster.get("ReasoningPool", "p") or {}).get("status", {})
    ready = [c for c in status.get("conditions", ()) if c["type"] == "Ready"]
    return f"{ready[0]['reason']}: {ready[0]['message']}" if ready else ""


@pytest.mark.parametrize("cause", CAUSES)
def test_rejected_pod_is_reported_in_the_servers_words_with_advice(
    crd_cluster: Kubernetes, apiserver: ApiServer, namespaces: dict[str, str], cause: str
) -> None:
    _, limit, changes, words, advice = CAUSES[cause]
    cluster = Cluster(apiserver, namespaces[cause])
    if limit is not None:
        crd_cluster.apply({"apiVersion": "v1", "metadata": {"name": "limit"}} | limit, namespace=cluster.namespace)
    cluster.create_pool(pool(tiers=[tier(**changes)]))
    eventually(lambda: message(cluster).startswith("PodsRefused"), "the refusal is told", SOON)
    assert words in message(cluster)
    assert advice in message(cluster)
    assert [e for e in cluster.list("Event") if e["reason"] == "PodsRefused" and words in e["message"]]


def test_rejection_disappears_once_fixed(
    crd_cluster: Kubernetes, apiserver: ApiServer, namespaces: dict[str, str]
) -> None:
    cluster = Cluster(apiserver, namespaces["quota-of-limits"])
    eventually(lambda: message(cluster).startswith("PodsRefused"), "the refusal is told", SOON)
    crd_cluster.kubectl("-n", cluster.namespace, "delete", "resourcequota", "limit")
    crd_cluster.kubectl("-n", cluster.namespace, "annotate", "statefulset", "p-reasoning", "retry=1")
    eventually(cluster.pods, "the controller tries again at once", 5)
    eventually(lambda: message(cluster) and "refused" not in message(cluster), "the refusal is forgotten", SOON)


def test_without_the_right_to_list_events_status_says_where_to_look(
    crd_cluster: Kubernetes, apiserver: ApiServer, tmp_path: Path
) -> None:
    cluster = Cluster(apiserver, crd_cluster.new_namespace("blind"))
    limited, _ = limited_kubeconfig(crd_cluster, tmp_path, events=("create",))
    with running(limited, cluster.namespace, tmp_path / "log", "--no-leader-election") as operator:
        operator.wait_leading()
        cluster.create_pool(pool(tiers=[tier(**PRIORITY)]))
        eventually(lambda: "cannot list resource" in operator.text(), "the events were asked for", SOON)
        assert message(cluster).startswith("Creating")
        assert "kubectl describe statefulset p-reasoning" in message(cluster)
        cluster.patch("ReasoningPool", "p", {"spec": {"tiers": [tier()]}})
        eventually(cluster.pods, "everything else goes on", SOON)
