"""Field reports that need controllers, pods or an absent operator, by their ids."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from cluster.kwok import READY_AFTER
from controlplane.operator_support import Cluster, eventually, running
from demo.stack import install_crd
from support.apiserver import ApiServer
from support.pools import chat_tier, pool, tier
from support.rights import limited_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cluster.core import Cluster as Kubernetes

REPLICAS = 3
SLOW = {"podOverrides": {"annotations": {READY_AFTER: "2s"}}}


@pytest.fixture(scope="module")
def gpus(fake_nodes_cluster: Kubernetes) -> None:
    """Nodes that no other test's pods fill."""
    install_crd(fake_nodes_cluster)
    fake_nodes_cluster.add_fake_nodes(2, prefix="reports")


@pytest.fixture
def fake(fake_nodes_cluster: Kubernetes, gpus: None) -> Iterator[Cluster]:
    """A namespace of a cluster whose fake nodes run pods."""
    with ApiServer(fake_nodes_cluster.kubeconfig) as api:
        yield Cluster(api, fake_nodes_cluster.new_namespace("reports"))


def ready_pods(cluster: Cluster) -> dict[str, str]:
    """Revision of each pod that serves."""
    return {
        item["metadata"]["name"]: item["metadata"]["labels"]["controller-revision-hash"]
        for item in cluster.list("Pod")
        if "deletionTimestamp" not in item["metadata"]
        and any(c["type"] == "Ready" and c["status"] == "True" for c in item["status"].get("conditions", ()))
    }


def reason(cluster: Cluster, name: str = "p") -> str:
    found = cluster.get("ReasoningPool", name) or {}
    return str(found.get("status", {}).get("reason", ""))


@pytest.mark.field_report("R09")
def test_quick_edits_take_down_one_replica_at_a_time_and_the_last_wins(
    fake_nodes_cluster: Kubernetes, fake: Cluster, tmp_path: Path
) -> None:
    with running(fake_nodes_cluster.kubeconfig, fake.namespace, tmp_path / "log") as operator:
        operator.wait_leading()
        fake.create_pool(pool(tiers=[tier(replicas=REPLICAS, **SLOW)]))
        eventually(lambda: reason(fake) == "Ready", "the pool is Ready", 60)
        fewest = REPLICAS
        for limit in (2, 3, 4):
            fake.patch("ReasoningPool", "p", {"spec": {"tiers": [tier(replicas=REPLICAS, maxNumSeqs=limit, **SLOW)]}})
            deadline = time.monotonic() + 1.0
            while time.monotonic() < deadline:
                fewest = min(fewest, len(ready_pods(fake)))

        def finished() -> bool:
            nonlocal fewest
            revisions = ready_pods(fake)
            fewest = min(fewest, len(revisions))
            wanted = json.dumps(fake.get("StatefulSet", "p-reasoning"))
            return "--max-num-seqs=4" in wanted and len(set(revisions.values())) == 1 and reason(fake) == "Ready"

        eventually(finished, "the last edit runs everywhere", 90)
        assert fewest >= REPLICAS - 1


@pytest.mark.field_report("R08")
def test_ready_is_false_while_a_new_revision_loads(
    fake_nodes_cluster: Kubernetes, fake: Cluster, tmp_path: Path
) -> None:
    with running(fake_nodes_cluster.kubeconfig, fake.namespace, tmp_path / "log") as operator:
        operator.wait_leading()
        fake.create_pool(pool(tiers=[tier(replicas=2, **SLOW)]))
        eventually(lambda: reason(fake) == "Ready", "the pool is Ready", 60)
        changed = fake.patch("ReasoningPool", "p", {"spec": {"tiers": [tier(replicas=2, maxNumSeqs=2, **SLOW)]}})
        generation = changed["metadata"]["generation"]

        def seen() -> dict[str, Any] | None:
            status = fake.get("ReasoningPool", "p")["status"]
            return status if status["observedGeneration"] == generation else None

        first = eventually(seen, "the operator sees the change")
        assert first["reason"] == "RolloutInProgress"
        assert "--max-num-seqs" in first["tiers"][0]["rollout"]["change"]
        eventually(lambda: reason(fake) == "Ready", "the pool is Ready again", 60)


@pytest.mark.field_report("R11")
def test_replaced_pool_adopts_its_children_and_rolls_them(
    fake_nodes_cluster: Kubernetes, fake: Cluster, tmp_path: Path
) -> None:
    body = pool(tiers=[tier()], engine={"image": "vllm/vllm-openai:v0.32.0"})
    with running(fake_nodes_cluster.kubeconfig, fake.namespace, tmp_path / "log") as operator:
        operator.wait_leading()
        fake.create_pool(body)
        eventually(lambda: reason(fake) == "Ready", "the pool is Ready", 60)
        before = fake.get("StatefulSet", "p-reasoning")
        body["spec"]["engine"]["image"] = "vllm/vllm-openai:v0.33.0"
        fake_nodes_cluster.kubectl("-n", fake.namespace, "replace", "-f", "-", input=json.dumps(body))

        def rolled() -> bool:
            live = fake.get("StatefulSet", "p-reasoning")
            image = live["spec"]["template"]["spec"]["containers"][0]["image"]
            return image.endswith("v0.33.0") and reason(fake) == "Ready" and len(ready_pods(fake)) == 1

        eventually(rolled, "the new image runs", 60)
        (only,) = fake.list("StatefulSet")
        assert only["metadata"]["uid"] == before["metadata"]["uid"]


@pytest.mark.field_report("K21")
def test_pools_can_be_written_and_deleted_without_an_operator(crd_cluster: Kubernetes, apiserver: ApiServer) -> None:
    namespace = crd_cluster.new_namespace("reports")
    cluster = Cluster(apiserver, namespace)
    cluster.create_pool(pool(tiers=[tier(), chat_tier()]))
    account = crd_cluster.kubectl("-n", namespace, "label", "serviceaccount", "default", "a=b")
    assert "labeled" in account.stdout
    crd_cluster.kubectl("-n", namespace, "delete", "reasoningpool", "p", "--timeout=10s")
    assert cluster.list("ReasoningPool") == []
    for kind in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
        assert crd_cluster.get(kind)["items"] == []


@pytest.mark.field_report("K09")
def test_fifty_pools_are_planned_against_a_slow_api_server(
    crd_cluster: Kubernetes, apiserver: ApiServer, tmp_path: Path
) -> None:
    cluster = Cluster(apiserver, crd_cluster.new_namespace("reports"))
    for number in range(50):
        cluster.create_pool(pool(f"p{number}", tiers=[tier(replicas=0)]))
    with running(crd_cluster.kubeconfig, cluster.namespace, tmp_path / "log", "--concurrency", "2"):
        eventually(lambda: len(cluster.list("StatefulSet")) == 50, "a StatefulSet for each pool", 90)
        eventually(
            lambda: all(item.get("status", {}).get("tiers") for item in cluster.list("ReasoningPool")), "statuses", 90
        )


def test_an_operator_outside_the_cluster_needs_rights_in_its_namespace_only(
    crd_cluster: Kubernetes, apiserver: ApiServer, tmp_path: Path
) -> None:
    cluster = Cluster(apiserver, crd_cluster.new_namespace("reports"))
    limited, system = limited_kubeconfig(crd_cluster, tmp_path, only_in=cluster.namespace)
    log = tmp_path / "log"
    with running(limited, cluster.namespace, log, "--lease-namespace", system) as operator:
        operator.wait_leading()
        cluster.create_pool(pool(tiers=[tier()]))
        eventually(cluster.pods, "the pod of the tier")
        eventually(lambda: reason(cluster) == "Unschedulable", "its status")
    assert "forbidden" not in log.read_text().lower()


def test_what_is_added_to_children_by_hand_stays_and_what_is_edited_is_put_back(
    crd_cluster: Kubernetes, apiserver: ApiServer, tmp_path: Path
) -> None:
    cluster = Cluster(apiserver, crd_cluster.new_namespace("reports"))
    with running(crd_cluster.kubeconfig, cluster.namespace, tmp_path / "log") as operator:
        operator.wait_leading()
        cluster.create_pool(pool(tiers=[tier()]))
        eventually(lambda: cluster.get("Service", "p-reasoning"), "the Service")
        by_hand = {
            "metadata": {"annotations": {"example.org/mine": "a"}},
            "spec": {"publishNotReadyAddresses": True, "trafficDistribution": "PreferSameZone"},
        }
        cluster.patch("Service", "p-reasoning", by_hand)

        def healed() -> Any:
            found = cluster.get("Service", "p-reasoning")
            return not found["spec"].get("publishNotReadyAddresses") and found

        found = eventually(healed, "the edited field is put back")
        assert found["metadata"]["annotations"]["example.org/mine"] == "a"
        assert found["spec"]["trafficDistribution"] == "PreferSameZone"


@pytest.fixture
def lonely_node(crd_cluster: Kubernetes) -> Iterator[str]:
    """A node that nothing but this test speaks for, of a product that no other test's pods wait for."""
    name = "lonely"
    capacity = {"cpu": "64", "memory": "512Gi", "pods": "10", "nvidia.com/gpu": "8", "ephemeral-storage": "1Ti"}
    labels = {"nvidia.com/gpu.product": "NVIDIA-H200"}
    crd_cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
    ready = {"type": "Ready", "status": "True", "reason": "Test", "lastHeartbeatTime": stamp()}
    status = json.dumps({"status": {"conditions": [ready], "capacity": capacity, "allocatable": capacity}})
    crd_cluster.kubectl("patch", "node", name, "--subresource=status", "--type=strategic", "-p", status)
    yield name
    crd_cluster.kubectl("delete", "node", name)


def stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def test_a_silent_node_is_named_and_its_engine_is_not_called_loading(
    crd_cluster: Kubernetes, apiserver: ApiServer, lonely_node: str, tmp_path: Path
) -> None:
    cluster = Cluster(apiserver, crd_cluster.new_namespace("reports"))
    with running(crd_cluster.kubeconfig, cluster.namespace, tmp_path / "log") as operator:
        operator.wait_leading()
        cluster.create_pool(pool(tiers=[tier()], accelerator={"product": "H200-SXM-141GB"}))
        eventually(
            lambda: [pod for pod in cluster.list("Pod") if pod["spec"].get("nodeName") == lonely_node],
            "a scheduled pod",
        )
        container = {"name": "engine", "image": "x", "imageID": "x", "ready": True, "started": True, "restartCount": 0}
        status = {
            "phase": "Running",
            "conditions": [{"type": kind, "status": "True"} for kind in ("Initialized", "ContainersReady", "Ready")],
            "containerStatuses": [container | {"state": {"running": {"startedAt": stamp()}}}],
        }
        patch = json.dumps({"status": status})
        crd_cluster.kubectl(
            "-n", cluster.namespace, "patch", "pod", "p-reasoning-0", "--subresource=status", "-p", patch
        )
        eventually(lambda: reason(cluster) == "Ready", "the pool is Ready")
        # Nothing speaks for the node any more; after 50 s the node controller takes its pods' readiness away.
        eventually(lambda: reason(cluster) == "NodeLost", "the node controller gives the node up", 120)
        (entry,) = cluster.get("ReasoningPool", "p")["status"]["tiers"]
        assert f"kubectl describe node {lonely_node}" in entry["message"]
