"""What a tier's status says while pods come, go, fail and are lost: a true reason and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from reasoningpool.objects import ObjectKey
from reasoningpool.planning.snapshot import ApplyFailure
from support.pools import changed, chat_tier, pool, tier
from support.world import World, condition

OOM = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2025-12-31T23:00:00Z"}}


def ready_world(**changes: Any) -> World:
    world = World(pool(tiers=[tier(**changes)]))
    world.step()
    world.roll("p-reasoning")
    world.step()
    assert condition(world.pool["status"])["status"] == "True"
    return world


def said(world: World) -> tuple[str, str]:
    """Reason and message of Ready after another look, the same as those of the tier."""
    world.step()
    ready = condition(world.pool["status"])
    (entry,) = world.pool["status"]["tiers"]
    assert entry["message"] in ready["message"]
    assert world.plan().status is None, "nothing happened, so nothing is written"
    return ready["reason"], ready["message"]


def first(world: World) -> dict[str, Any]:
    """The first pod."""
    return world.pods["p-reasoning-0"]


def engine(world: World) -> dict[str, Any]:
    """Status of its engine."""
    return first(world)["status"]["containerStatuses"][0]


def unready(world: World, **more: Any) -> None:
    """The pod is not ready any more."""
    first(world)["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    engine(world).update(more)


# -- a pool that was Ready -------------------------------------------------------------------------------------------


def test_draining_pod_does_not_count_as_loading() -> None:
    world = ready_world(replicas=2)
    first(world)["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:00Z"
    reason, message = said(world)
    assert reason == "Starting"
    assert "1 of 2 replicas ready" in message
    assert (
        "p-reasoning-0 finishes its requests until 2026-01-01T01:00:00Z at the latest, then it is replaced" in message
    )
    assert "loads its model" not in message


def test_a_pod_that_a_smaller_tier_lets_go_is_not_missed() -> None:
    world = ready_world(replicas=2)
    world.edit(pool(tiers=[tier(replicas=1)]))
    world.step()
    world.children["StatefulSet", "p-reasoning"]["status"]["observedGeneration"] = 2
    world.pods["p-reasoning-1"]["metadata"]["deletionTimestamp"] = "2025-12-31T23:00:00Z"
    assert said(world) == ("Ready", "tier reasoning: 1 of 1 replicas ready")
    unready(world)
    assert "p-reasoning-1" not in said(world)[1]


def test_a_preempted_pod_tells_who_took_its_place() -> None:
    world = ready_world()
    first(world)["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:00Z"
    first(world)["status"]["conditions"].append(
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "preempting"}
    )
    assert "(PreemptionByScheduler: preempting)" in said(world)[1]


def test_a_pod_that_should_have_ended_long_ago_is_on_a_lost_node() -> None:
    world = ready_world()
    first(world)["metadata"]["deletionTimestamp"] = "2025-12-31T23:58:00Z"  # two minutes ago
    first(world)["spec"] = {"nodeName": "gpu-7"}
    reason, message = said(world)
    assert reason == "NodeLost"
    assert "kubectl delete node gpu-7, or kubectl delete pod p-reasoning-0 --force" in message


def test_a_pod_on_a_silent_node_is_not_called_loading() -> None:
    world = ready_world(replicas=2)
    first(world)["spec"] = {"nodeName": "gpu-7"}
    # What the node controller leaves: Ready is taken away, all else is as last reported.
    first(world)["status"]["conditions"] = [
        {"type": "Ready", "status": "False"},
        {"type": "ContainersReady", "status": "True"},
    ]
    engine(world).update(ready=True, started=True)
    reason, message = said(world)
    assert reason == "NodeLost"
    assert "kubectl describe node gpu-7" in message
    assert message.endswith("1 of 2 replicas serve")


@pytest.mark.parametrize(
    ("why", "words", "advice"),
    [
        ("Evicted", "The node was low on resource: ephemeral-storage.", "ephemeral storage"),
        ("UnexpectedAdmissionError", "no healthy devices present", "check the device plugin"),
        ("NodeShutdown", "Pod was terminated in response to imminent node shutdown.", "kubectl describe node gpu-7"),
    ],
)
def test_pod_ended_by_its_node_is_not_a_crash(why: str, words: str, advice: str) -> None:
    world = ready_world()
    first(world)["spec"] = {"nodeName": "gpu-7"}
    unready(world, state={"terminated": {"exitCode": 137, "reason": "Error"}})
    first(world)["status"] |= {"phase": "Failed", "reason": why, "message": words}
    reason, message = said(world)
    assert reason == "Evicted"
    assert f"({why}: {words})" in message
    assert advice in message


def test_an_image_that_cannot_be_pulled_again_after_a_restart() -> None:
    world = ready_world()
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    unready(world, state={"waiting": waiting}, lastState=OOM, image="x:1", restartCount=1)
    reason, message = said(world)
    assert reason == "ImagePullFailed"
    assert "engine.image" in message


def test_oom_killed_engine_is_reported_while_loading_and_after() -> None:
    world = ready_world()
    unready(world, state={"running": {}}, lastState=OOM, restartCount=1)
    reason, message = said(world)
    assert reason == "OutOfMemory"
    assert "raise the engine container's memory limit" in message
    first(world)["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    reason, message = said(world)
    assert reason == "Ready"
    assert "before its restart at 2025-12-31T23:00:00Z pod p-reasoning-0 was OOM-killed, host memory" in message


def test_clean_restart_of_a_serving_pod_is_not_reported() -> None:
    world = ready_world()
    engine(world).update(lastState={"terminated": {"exitCode": 0, "reason": "Completed"}}, restartCount=1)
    assert said(world)[1] == "tier reasoning: 1 of 1 replicas ready"


def test_an_engine_that_stops_answering_is_not_called_loading() -> None:
    world = ready_world()
    unready(world, started=True, ready=False, state={"running": {"startedAt": "2025-12-31T20:00:00Z"}})
    first(world)["status"]["conditions"][0]["lastTransitionTime"] = "2025-12-31T23:00:00Z"
    reason, message = said(world)
    assert reason == "NotReady"
    assert "was serving but no longer passes its readiness probe (kubectl logs p-reasoning-0)" in message


def test_an_engine_that_has_just_loaded_is_not_called_silent() -> None:
    world = World(pool())
    world.step()
    world.roll("p-reasoning", ready=False, started=True, state={"running": {"startedAt": "2025-12-31T20:00:05Z"}})
    first(world)["status"]["conditions"][0]["lastTransitionTime"] = "2025-12-31T20:00:00Z"
    reason, message = said(world)
    assert reason == "Starting"
    assert "has loaded its model but has not passed its readiness probe yet" in message


# -- starts ----------------------------------------------------------------------------------------------------------


def test_a_loading_replica_tells_since_when_and_until_when_at_most() -> None:
    world = World(pool(tiers=[tier(engine={"startupTimeoutSeconds": 4380})]))
    world.step()
    world.roll("p-reasoning", ready=False, state={"running": {"startedAt": "2026-01-01T00:00:10Z"}}, started=False)
    probe = {"failureThreshold": 438, "periodSeconds": 10}
    first(world)["spec"] = {"containers": [{"name": "engine", "startupProbe": probe}]}
    reason, message = said(world)
    assert reason == "Starting"
    assert (
        "has been loading its model since 2026-01-01T00:00:10Z, for at most 4380 s (until 2026-01-01T01:13:10Z)"
        in message
    )


def test_pods_before_their_engine_runs_are_not_called_loading() -> None:
    world = World(pool())
    world.step()
    world.roll("p-reasoning", ready=False, state={"waiting": {"reason": "ContainerCreating"}})
    assert "p-reasoning-0 is being prepared" in said(world)[1]
    first(world)["status"] = {"conditions": []}
    assert "p-reasoning-0 is waiting for the scheduler" in said(world)[1]
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    first(world)["status"] = {"conditions": [gated]}
    first(world)["spec"] = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
    reason, message = said(world)
    assert reason == "Unschedulable"
    assert "kueue.x-k8s.io/admission" in message


def test_many_loading_replicas_are_summarized() -> None:
    world = World(pool(tiers=[tier(replicas=40)]))
    world.step()
    world.roll("p-reasoning", ready=False)
    _, message = said(world)
    assert message.count("loads its model") == 3
    assert message.endswith("and 37 more")


def test_creation_is_an_event_once_it_happened_and_not_when_it_was_refused() -> None:
    world = World(pool())
    assert [event.reason for event in world.plan().events] == []
    key = ObjectKey("apps/v1", "StatefulSet", "default", "p-reasoning")
    world.failures = (ApplyFailure(key=key, message="exceeded quota"),)
    assert [event.reason for event in world.plan().events] == ["ApplyFailed"]
    world.failures = ()
    world.step()
    live = world.children["StatefulSet", "p-reasoning"]["metadata"]
    live["creationTimestamp"] = "2025-12-31T23:59:58Z"
    assert [event.reason for event in world.plan().events] == ["WorkloadCreated"]
    live["creationTimestamp"] = "2025-12-31T22:59:58Z"
    assert [event.reason for event in world.plan().events] == []


# -- rollouts --------------------------------------------------------------------------------------------------------


def test_no_replica_runs_the_new_revision_when_a_rollout_begins() -> None:
    world = ready_world(replicas=2)
    world.edit(pool(tiers=[tier(replicas=2, maxNumSeqs=3)]))
    world.step()
    (entry,) = world.pool["status"]["tiers"]
    assert entry["message"].startswith(
        "tier reasoning: 0 of 2 replicas run the new revision, 0 of them ready; 2 of the old"
    )
    assert entry["rollout"]["updatedReplicas"] == 0
    assert said(world)[0] == "RolloutInProgress"
    world.roll("p-reasoning", keep=1, ready=False)
    assert "1 of 2 replicas run the new revision, 0 of them ready; 1 of the old revision still serve" in said(world)[1]


def test_unschedulable_new_replica_is_reported_with_what_serves() -> None:
    world = ready_world(replicas=2)
    world.edit(pool(tiers=[tier(replicas=2, maxNumSeqs=3)]))
    world.step()
    world.roll("p-reasoning", keep=1, ready=False)
    words = "0/5 nodes are available: 5 Insufficient nvidia.com/gpu."
    world.pods["p-reasoning-1"]["status"] = {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}]
    }
    reason, message = said(world)
    assert reason == "WaitingForGPU"
    assert words in message
    assert message.endswith("1 of 2 replicas serve")


# -- suspended, and what does not fit ----------------------------------------------------------------------------------


def test_a_suspended_pool_promises_nothing() -> None:
    world = World(pool(suspend=True))
    world.step()
    assert said(world) == (
        "Suspended",
        "suspended: nothing is changed or removed; tier reasoning: nothing is created while spec.suspend is true",
    )


def test_a_suspended_pool_tells_what_it_keeps_back() -> None:
    world = ready_world(replicas=2)
    world.edit(pool(suspend=True, tiers=[tier(replicas=3, maxNumSeqs=3)]))
    reason, message = said(world)
    assert reason == "Suspended"
    assert "2 of 2 replicas ready; held back while spec.suspend is true: " in message
    assert "--max-num-seqs" in message
    assert "3 replicas in place of 2" in message
    assert "at most" not in message


def test_a_suspended_pool_still_tells_why_a_pod_fails_and_counts_what_there_is() -> None:
    world = ready_world(replicas=2)
    world.edit(pool(suspend=True, tiers=[tier(replicas=5)]))
    unready(world, state={"running": {}}, lastState=OOM, restartCount=1)
    reason, message = said(world)
    assert reason == "Suspended"
    assert "OOM-killed, host memory" in message
    assert message.endswith("1 of 2 replicas serve")


def test_budgets_that_no_longer_fit_leave_the_running_replicas_as_they_were() -> None:
    world = World(pool(tiers=[tier(replicas=2), chat_tier()]))
    world.step()
    for name in ("p-reasoning", "p-chat"):
        world.roll(name)
    world.step()
    world.edit(changed(world.pool, "spec.tiers.0.accelerator", {"product": "L4-24GB"}))
    world.step()
    ready = condition(world.pool["status"])
    assert ready["reason"] == "DoesNotFit"
    assert "its StatefulSet stays as it was, and so do its 2 replicas (2 ready)" in ready["message"]
    fresh = World(changed(pool(), "spec.tiers.0.accelerator", {"product": "L4-24GB"}))
    fresh.step()
    assert "nothing is created for it" in condition(fresh.pool["status"])["message"]
