"""`make soak`: two operators killed at 30 random moments, the API server restarted three times, 20 pools in motion.

The scaled-down version, with 5 kills, is in `test_operator_process.py` and runs with every test run.
"""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest

from controlplane.operator_support import CHILDREN, Cluster, eventually, running
from support.pools import chat_tier, pool, tier

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

KILLS = 30
RESTARTS = frozenset({8, 16, 24})  # of the API server, at these kills
POOLS = 20
KEPT = "kept"


def variant(dice: random.Random, name: str) -> dict[str, Any]:
    """A pool as a user may have edited it last."""
    tiers = [tier(replicas=dice.randint(0, 3), maxNumSeqs=dice.randint(2, 9))]
    if dice.random() < 0.5:
        tiers.append(chat_tier(replicas=dice.randint(1, 2)))
    return pool(name, tiers=tiers)


def shape(cluster: Cluster) -> dict[str, Any]:
    """What the children are, without what differs between two namespaces and between two histories."""
    found = {}
    for kind in CHILDREN:
        for item in cluster.list(kind):
            if not any(owner["kind"] == "ReasoningPool" for owner in item["metadata"].get("ownerReferences", ())):
                continue
            spec = item.get("spec", {})
            if spec.get("clusterIP") != "None":  # an address of its own differs from Service to Service
                spec = {name: value for name, value in spec.items() if name not in {"clusterIP", "clusterIPs"}}
            found[f"{kind}/{item['metadata']['name']}"] = [item["metadata"]["labels"], spec]
    return found


def test_thirty_kills_and_three_restarts_lead_to_the_state_without_any(crd_cluster, apiserver, tmp_path):
    dice = random.Random(11)
    cluster = Cluster(apiserver, crd_cluster.new_namespace("soak"))
    wanted: dict[str, dict[str, Any]] = {KEPT: pool(KEPT, tiers=[tier(replicas=2), chat_tier()])}
    cluster.create_pool(wanted[KEPT])

    def operator(name: str) -> Any:
        return running(crd_cluster.kubeconfig, cluster.namespace, tmp_path / f"{name}.log")

    def churn() -> None:
        name = f"p{dice.randrange(POOLS)}"
        if name not in wanted:
            wanted[name] = variant(dice, name)
            cluster.create_pool(wanted[name])
        elif dice.random() < 0.3:
            del wanted[name]
            cluster.delete("ReasoningPool", name)
            eventually(lambda: cluster.get("ReasoningPool", name) is None, f"{name} is gone")
        else:
            wanted[name] = variant(dice, name)
            cluster.patch("ReasoningPool", name, {"spec": wanted[name]["spec"]})

    both = [operator("first"), operator("second")]
    running_now = [context.__enter__() for context in both]
    try:
        eventually(lambda: len([n for n in cluster.pods() if n.startswith(KEPT)]) == 3, "the kept pods", 60)
        kept = {name: uid for name, uid in cluster.pods().items() if name.startswith(KEPT)}
        for kill in range(1, KILLS + 1):
            for _ in range(dice.randint(2, 5)):
                churn()
            time.sleep(dice.uniform(0.0, 4.0))  # the random moment
            victim = dice.randrange(2)
            running_now[victim].kill()
            if kill in RESTARTS:
                crd_cluster.restart("kube-apiserver")
                cluster.reconnect()
            both[victim] = operator(f"kill-{kill}")
            running_now[victim] = both[victim].__enter__()
        reference = Cluster(apiserver, crd_cluster.new_namespace("reference"))
        for body in wanted.values():
            reference.create_pool(json.loads(json.dumps(body)))
        with running(crd_cluster.kubeconfig, reference.namespace, tmp_path / "reference.log"):
            eventually(lambda: len(shape(reference)) >= 3 * len(wanted), "the reference", 120)
            eventually(lambda: shape(cluster) == shape(reference), "the state without kills", 120)
        assert {name: uid for name, uid in cluster.pods().items() if name.startswith(KEPT)} == kept
    finally:
        for context in both:
            context.__exit__(None, None, None)
