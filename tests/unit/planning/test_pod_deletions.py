"""Which pods are deleted for the StatefulSet controller's sake, and in which order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.pools import changed, pool, tier
from support.world import World

SET = "p-reasoning"
CLAIMED = {"claimTemplate": {"size": "10Gi"}}


def world(replicas: int, most: int = 1, cache: dict[str, Any] | None = CLAIMED) -> World:
    """A tier whose StatefulSet has just been replaced by one with a claim template; its pods have node disks."""
    body = pool(tiers=[tier(replicas=replicas, rollout={"maxUnavailable": most})])
    made = World(changed(body, "spec.model.cache", cache) if cache else body)
    made.step()
    made.roll(SET)
    for item in made.pods.values():
        adopt(made, item)
    return made


def adopt(world: World, item: dict[str, Any], *volumes: dict[str, Any]) -> None:
    item["metadata"]["ownerReferences"] = [{"uid": f"StatefulSet-{SET}", "controller": True}]
    item["spec"] = {"volumes": [{"name": "cache", "emptyDir": {}}] if not volumes else list(volumes)}


def claim(name: str) -> dict[str, Any]:
    return {"name": "cache", "persistentVolumeClaim": {"claimName": name}}


def give_claim(world: World, name: str) -> None:
    adopt(world, world.pods[name], claim(f"cache-{name}"))


def ready(world: World, name: str, status: str) -> None:
    world.pods[name]["status"]["conditions"][0]["status"] = status


def deletions(world: World) -> list[str]:
    return [delete.key.name for delete in world.plan().deletes if delete.key.kind == "Pod"]


def test_the_lowest_goes_first_since_the_controller_creates_none_above_it() -> None:
    made = world(3)
    done = made.plan()
    assert [delete.key.name for delete in done.deletes] == [f"{SET}-0"]
    assert done.deletes[0].uid == made.pods[f"{SET}-0"]["metadata"]["uid"]
    (event,) = [event for event in done.events if event.reason == "PodReplaced"]
    assert f"{SET}-0" in event.message


def test_the_next_goes_when_the_one_before_is_back_and_ready() -> None:
    made = world(3)
    gone = made.pods.pop(f"{SET}-0")
    assert deletions(made) == []
    made.pods[f"{SET}-0"] = gone
    give_claim(made, f"{SET}-0")
    ready(made, f"{SET}-0", "False")
    assert deletions(made) == []
    ready(made, f"{SET}-0", "True")
    assert deletions(made) == [f"{SET}-1"]


def test_a_pod_that_drains_is_waited_for() -> None:
    made = world(2)
    made.pods[f"{SET}-0"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert deletions(made) == []


def test_as_many_go_at_once_as_the_rollout_allows() -> None:
    assert deletions(world(4, most=2)) == [f"{SET}-0", f"{SET}-1"]


def test_pods_that_do_not_serve_go_at_once() -> None:
    made = world(3)
    for name in made.pods:
        ready(made, name, "False")
    assert deletions(made) == [f"{SET}-0", f"{SET}-1", f"{SET}-2"]


def test_a_replica_that_still_loads_is_waited_for_and_one_that_fails_is_not() -> None:
    made = world(2)
    ready(made, f"{SET}-1", "False")
    assert deletions(made) == []
    made.pods[f"{SET}-1"]["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "ImagePullBackOff"}}
    assert deletions(made) == [f"{SET}-0", f"{SET}-1"]


def test_a_missing_replica_that_cannot_come_back_before_is_not_waited_for() -> None:
    made = world(2)
    del made.pods[f"{SET}-1"]
    assert deletions(made) == [f"{SET}-0"]


@pytest.mark.parametrize("other", ["shared", f"cache-{SET}-1"])
def test_a_pod_with_another_claim_is_replaced_too(other: str) -> None:
    made = world(1)
    adopt(made, made.pods[f"{SET}-0"], claim(other))
    assert deletions(made) == [f"{SET}-0"]


@pytest.mark.parametrize("cache", [None, {"claimName": "shared"}])
def test_a_claim_template_that_is_taken_away_is_left_to_the_controller(cache: dict[str, Any] | None) -> None:
    made = world(2, cache=cache)
    for name in made.pods:
        give_claim(made, name)
    assert deletions(made) == []


def test_pods_that_the_new_set_has_not_adopted_are_left_alone() -> None:
    made = world(2)
    for item in made.pods.values():
        item["metadata"]["ownerReferences"][0]["uid"] = "the set before"
    assert deletions(made) == []


def test_pods_above_the_wanted_number_are_left_to_the_controller() -> None:
    made = world(2)
    give_claim(made, f"{SET}-0")
    made.children["StatefulSet", SET]["spec"]["replicas"] = 1
    made.edit(changed(made.pool, "spec.tiers.0.replicas", 1))
    assert deletions(made) == []


def test_a_suspended_pool_loses_no_pod() -> None:
    made = world(2)
    made.edit(changed(made.pool, "spec.suspend", value=True))
    assert deletions(made) == []


def test_nothing_is_deleted_while_the_template_is_about_to_change() -> None:
    made = world(2)
    made.edit(changed(made.pool, "spec.tiers.0.maxNumSeqs", 3))
    assert deletions(made) == []


@settings(deadline=None, max_examples=50)
@given(data=st.data(), replicas=st.integers(1, 6), most=st.integers(1, 4))
def test_replacing_comes_to_an_end_and_takes_no_more_replicas_than_allowed(
    data: st.DataObject, replicas: int, most: int
) -> None:
    made = world(replicas, most)
    for number in range(6 * replicas):
        may_dawdle = number < 2 * replicas
        if len(made.pods) == replicas and not lacking(made):
            break
        made.step()
        assert sum(serves(item) for item in made.pods.values()) >= replicas - most
        # The controller: up to the first pod that it cannot bring to its claims.
        for ordinal in range(replicas):
            name = f"{SET}-{ordinal}"
            if name in lacking(made):
                break
            if may_dawdle and data.draw(st.booleans(), label=f"{name} takes its time"):
                continue
            if name in made.pods:
                ready(made, name, "True")
            else:
                fresh = World(made.pool, children=made.children)
                fresh.roll(SET, ready=False)
                made.pods[name] = fresh.pods[name]
                give_claim(made, name)
    assert len(made.pods) == replicas
    assert lacking(made) == []


def lacking(world: World) -> list[str]:
    return [name for name, item in world.pods.items() if "emptyDir" in item["spec"]["volumes"][0]]


def serves(item: dict[str, Any]) -> bool:
    return bool(item["status"]["conditions"][0]["status"] == "True")
