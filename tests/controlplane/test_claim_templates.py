"""A claim per replica added to a pool that runs, and taken away: real controllers, fake nodes, real claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cluster.kwok import READY_AFTER
from controlplane.operator_support import Cluster, eventually, running
from demo.stack import install_crd
from support.apiserver import ApiServer
from support.pools import pool, tier

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cluster.core import Cluster as Kubernetes

REPLICAS = 3
TIER = tier(replicas=REPLICAS, podOverrides={"annotations": {READY_AFTER: "1s"}})


@pytest.fixture
def fake(fake_nodes_cluster: Kubernetes) -> Iterator[Cluster]:
    """A namespace of a cluster whose fake nodes run pods, and a volume for each claim that will be made in it."""
    install_crd(fake_nodes_cluster)
    fake_nodes_cluster.add_fake_nodes(1, prefix="claims")
    with ApiServer(fake_nodes_cluster.kubeconfig) as api:
        cluster = Cluster(api, fake_nodes_cluster.new_namespace("claims"))
        for ordinal in range(REPLICAS):
            assert api.request("POST", "/api/v1/persistentvolumes", volume(cluster.namespace, ordinal)).ok
        yield cluster


def volume(namespace: str, ordinal: int) -> dict[str, Any]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "storageClassName": namespace,
        "hostPath": {"path": "/nowhere"},
    }
    name = f"{namespace}-{ordinal}"
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def caches(cluster: Cluster) -> dict[str, str]:
    """What each pod that serves keeps its cache on: the name of a claim, or `node`."""
    found = {}
    for item in cluster.list("Pod"):
        ready = [c["status"] for c in item["status"].get("conditions", ()) if c["type"] == "Ready"]
        if "deletionTimestamp" not in item["metadata"] and ready == ["True"]:
            (cache,) = [entry for entry in item["spec"]["volumes"] if entry["name"] == "cache"]
            found[item["metadata"]["name"]] = cache.get("persistentVolumeClaim", {}).get("claimName", "node")
    return found


def test_claims_come_and_go_one_replica_at_a_time_without_a_hand(
    fake_nodes_cluster: Kubernetes, fake: Cluster, tmp_path: Path
) -> None:
    on_nodes = {f"p-reasoning-{n}": "node" for n in range(REPLICAS)}
    on_claims = {name: f"cache-{name}" for name in on_nodes}
    fewest = REPLICAS

    def all_on(wanted: dict[str, str]) -> bool:
        nonlocal fewest
        found = caches(fake)
        fewest = min(fewest, len(found))
        status = (fake.get("ReasoningPool", "p") or {}).get("status", {})
        return found == wanted and status.get("reason") == "Ready"

    with running(fake_nodes_cluster.kubeconfig, fake.namespace, tmp_path / "log") as operator:
        operator.wait_leading()
        fake.create_pool(pool(tiers=[TIER]))
        eventually(lambda: caches(fake) == on_nodes, "pods with node disks", 60)
        fewest = REPLICAS
        template = {"claimTemplate": {"size": "1Gi", "storageClassName": fake.namespace}}
        fake.patch("ReasoningPool", "p", {"spec": {"model": {"cache": template}}})
        eventually(lambda: all_on(on_claims), "a claim for each replica", 90)
        said = [(event["reason"], event["message"]) for event in fake.list("Event")]
        refused = [text for reason, text in said if reason == "FailedUpdate"]
        assert any("pod updates may not change fields" in text for text in refused), "no need for us any more?"
        assert len([text for reason, text in said if reason == "PodReplaced"]) == REPLICAS
        fake.patch("ReasoningPool", "p", {"spec": {"model": {"cache": None}}})
        eventually(lambda: all_on(on_nodes), "node disks again", 90)
    assert fewest >= REPLICAS - 1
