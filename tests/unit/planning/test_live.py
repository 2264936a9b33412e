"""Which pods are a tier's: those that its StatefulSet controls, and for a moment those that it will adopt."""

from __future__ import annotations

import copy
from typing import Any

from support.pools import pool, tier
from support.world import World, condition

SET = "p-reasoning"


def world(replicas: int = 2) -> World:
    made = World(pool(tiers=[tier(replicas=replicas)]))
    made.step()
    made.roll(SET)
    return made


def copied(made: World, name: str, *, ready: bool, owner: dict[str, Any] | None = None) -> None:
    """A pod of somebody else with the labels of the first replica."""
    item = copy.deepcopy(made.pods[f"{SET}-0"])
    item["metadata"] |= {"name": name, "uid": f"uid-{name}", "ownerReferences": [owner] if owner else []}
    item["metadata"]["labels"]["controller-revision-hash"] = "old"
    item["status"]["conditions"] = [{"type": "Ready", "status": str(ready)}]
    made.pods[name] = item


def test_pods_with_copied_labels_are_not_deleted() -> None:
    made = world()
    for number in range(29):
        owner = {"kind": "ReplicaSet", "name": "theirs", "uid": "theirs", "controller": True}
        copied(made, f"theirs-{number}", ready=False, owner=owner)
    copied(made, f"{SET}-7", ready=False)
    made.step()
    assert made.deleted == []


def test_pods_with_copied_labels_do_not_make_a_tier_ready() -> None:
    made = world()
    for name in list(made.pods):
        made.pods[name]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    copied(made, "theirs-0", ready=True)
    copied(made, f"{SET}-7", ready=True)
    made.step()
    assert made.pool["status"]["tiers"][0]["readyReplicas"] == 0
    assert condition(made.pool["status"])["status"] == "False"


def test_pods_with_copied_labels_are_not_asked_for_metrics_or_logs() -> None:
    made = world()
    for name in list(made.pods):
        copied(made, f"theirs-{name}", ready=True)
        made.pods[f"theirs-{name}"]["metadata"]["labels"] = made.pods[name]["metadata"]["labels"]
    engines = {wanted.engine.partition("/")[0] for wanted in made.plan().wanted if hasattr(wanted, "engine")}
    assert engines == {made.pods[f"{SET}-{number}"]["metadata"]["uid"] for number in range(2)}


def test_pods_that_wait_to_be_adopted_count_until_the_controller_has_seen_the_new_set() -> None:
    made = world()
    made.children["StatefulSet", SET]["metadata"]["uid"] = "new"
    made.children["StatefulSet", SET]["status"] = {}
    for item in made.pods.values():
        item["metadata"]["ownerReferences"] = []
    made.step()
    assert made.pool["status"]["tiers"][0]["readyReplicas"] == 2
    assert made.deleted == []


def test_stateful_set_has_room_for_the_replicas_of_the_last_status() -> None:
    made = world(3)
    del made.children["StatefulSet", SET]
    (apply,) = (apply for apply in made.plan().applies if apply.manifest["kind"] == "StatefulSet")
    assert apply.replicas_before == 3


def test_pods_that_the_pool_owns_go_with_their_tier() -> None:
    made = World(pool(tiers=[tier(), tier("chat")]))
    made.step()
    made.roll(SET)
    made.roll("p-chat")
    del made.children["StatefulSet", SET], made.children["StatefulSet", "p-chat"]
    for item in made.pods.values():
        item["metadata"]["ownerReferences"] = [{"kind": "ReasoningPool", "name": "p", "uid": "pool-uid"}]
    stray = "p-chat-9"
    copied(made, stray, ready=True)
    made.pods[stray]["metadata"]["labels"] = dict(made.pods["p-chat-0"]["metadata"]["labels"])
    made.edit(pool(tiers=[tier()]))
    deletes = [delete.key.name for delete in made.plan().deletes if delete.key.kind == "Pod"]
    assert deletes == ["p-chat-0"]
