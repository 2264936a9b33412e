"""What people do to the operator's objects by hand, and how soon it is undone: the whole operator, its real watches."""

from __future__ import annotations

import pytest

from controlplane.operator_support import CHILDREN, Cluster, eventually, running
from reasoningpool.api import names
from support.pools import pool, tier

OBJECTS = (
    ("StatefulSet", "p-reasoning"),
    ("Service", "p-reasoning"),
    ("Service", "p-reasoning-pods"),
    ("ServiceAccount", "p-engine"),
    ("PodDisruptionBudget", "p-reasoning"),
)
LABELS = names.pool_selector("p")


@pytest.fixture
def cluster(crd_cluster, apiserver):
    made = Cluster(apiserver, crd_cluster.new_namespace("edits"))
    yield made
    for left in made.list("ReasoningPool"):  # pods that wait for a GPU would take that of another test's node
        made.delete("ReasoningPool", left["metadata"]["name"])


@pytest.fixture
def operator(crd_cluster, cluster, tmp_path):
    """An operator whose resync is so rare that only events can be what heals."""
    slow = {"REASONINGPOOL_COMPARE_SECONDS": "3600"}
    with running(
        crd_cluster.kubeconfig, cluster.namespace, tmp_path / "log", "--resync-seconds", "3600", **slow
    ) as started:
        yield started.wait_leading()


def make(cluster):
    cluster.create_pool(pool(tiers=[tier(replicas=2)]))
    eventually(lambda: all(cluster.get(kind, name) for kind, name in OBJECTS), "all objects")
    eventually(lambda: len(cluster.pods()) == 2, "the pods")
    eventually(lambda: judged_by_pods(cluster), "the status")


def judged_by_pods(cluster):
    """There are no nodes here, and a pool whose StatefulSet is known says so."""
    return status(cluster).get("reason") in {"Unschedulable", "WaitingForGPU"}


def status(cluster):
    return cluster.get("ReasoningPool", "p").get("status", {})


@pytest.mark.parametrize("lost", [[names.LABEL_POOL], [names.LABEL_MANAGED_BY], "all"])
def test_labels_taken_off_come_back_and_the_objects_stay_under_control(cluster, operator, lost):
    make(cluster)
    pods = cluster.pods()
    for kind, name in OBJECTS:
        taken = cluster.get(kind, name)["metadata"]["labels"] if lost == "all" else lost
        cluster.patch(kind, name, {"metadata": {"labels": dict.fromkeys(taken)}})

    def labelled():
        metas = [cluster.get(kind, name)["metadata"] for kind, name in OBJECTS]
        return all(meta.get("labels", {}).items() >= LABELS.items() for meta in metas)

    eventually(labelled, "the labels to come back")
    eventually(lambda: judged_by_pods(cluster), "the status to know the StatefulSet")
    cluster.patch("StatefulSet", "p-reasoning", {"spec": {"replicas": 5}}, manager="kubectl")
    eventually(lambda: cluster.replicas("p-reasoning") == 2, "the number to be taken back")
    assert cluster.pods().items() >= pods.items()
    assert cluster.get("StatefulSet", "p-reasoning")["metadata"]["generation"] <= 3


def test_the_number_of_a_port_is_changed_back_at_once(cluster, operator):
    make(cluster)
    before = cluster.get("Service", "p-reasoning")
    path, content = cluster.path("Service", "p-reasoning"), "application/json-patch+json"
    edit = [{"op": "replace", "path": "/spec/ports/0/port", "value": 9000}]
    assert cluster.api.request("PATCH", path, edit, content_type=content).ok
    eventually(lambda: cluster.get("Service", "p-reasoning")["spec"] == before["spec"], "our port")
    assert cluster.get("Service", "p-reasoning")["metadata"]["uid"] == before["metadata"]["uid"]


def test_an_edited_status_is_put_right_at_once(cluster, operator):
    make(cluster)
    before = status(cluster)
    content, path = "application/merge-patch+json", cluster.path("ReasoningPool", "p") + "/status"
    lie = {"status": {"reason": "Ready", "ready": "7/7", "maxNumSeqs": None}}
    assert cluster.api.request("PATCH", path, lie, content_type=content).ok
    eventually(lambda: status(cluster) == before, "the status")


def test_what_was_in_the_way_is_named_first_and_its_removal_noticed_soon(cluster, operator):
    theirs = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "p-engine"}}
    assert cluster.api.request("POST", cluster.path("ServiceAccount"), theirs).ok
    cluster.create_pool(pool(tiers=[tier(replicas=2)]))
    eventually(lambda: status(cluster).get("reason") == "ApplyFailed", "the refusal")
    message = status(cluster)["tiers"][0]["message"]
    assert message.startswith("tier reasoning: ServiceAccount p-engine: exists already and does not belong to this")
    assert message.endswith("StatefulSet p-reasoning: waits for ServiceAccount p-engine")
    cluster.delete("ServiceAccount", "p-engine")
    eventually(lambda: len(cluster.pods()) == 2, "the pods", 35)
    eventually(lambda: judged_by_pods(cluster), "the status")


def test_the_log_tells_what_the_operator_does(cluster, operator):
    make(cluster)
    cluster.patch("ReasoningPool", "p", {"spec": {"tiers": [tier(replicas=3, maxNumSeqs=2)]}})
    eventually(lambda: cluster.replicas("p-reasoning") == 3, "the new number")
    eventually(lambda: "RolloutStarted" in operator.text(), "the cycle's events, which come last")
    cluster.delete("ReasoningPool", "p")
    eventually(lambda: not any(cluster.list(kind) for kind in CHILDREN[1:]), "the children to go", 60)
    eventually(lambda: "the pool is gone" in operator.text(), "the last line")
    said = [line["message"] for line in operator.lines() if line.get("pool") == "p" and line["level"] == "info"]
    text = "\n".join(said)
    for expected in (
        "reconciling this pool",
        "p-reasoning created",
        "RolloutStarted: tier reasoning: rolling to revision",
        "scaled from 2 to 3 replicas",
        "the pool is gone",
    ):
        assert expected in text
    assert len(said) < 15, text
