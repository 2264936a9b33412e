"""Pods that the API server refuses, in its words and ours."""

from __future__ import annotations

import pytest

from reasoningpool.planning.diagnosis.pod_creation import creation_failure, explain_missing_pod
from reasoningpool.planning.observations import PodCreationFailure, PodCreationFailuresRequest
from support.pools import chat_tier, pool, tier
from support.world import World, condition

FRAME = "create Pod p-reasoning-0 in StatefulSet p-reasoning failed error: "
QUOTA = (
    'pods "p-reasoning-0" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1,'
    " used: requests.nvidia.com/gpu=4, limited: requests.nvidia.com/gpu=4"
)


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (QUOTA, "raise quota gpus (requests.nvidia.com/gpu)"),
        ('pods "p" is forbidden: failed quota: q: must specify limits.cpu for: engine', "quota q requires a value"),
        ('pods "p" is forbidden: maximum memory usage per Pod is 1Gi, but limit is 9', "rejects this memory"),
        ('pods "p" is forbidden: no PriorityClass with name inference was found', "create the PriorityClass inference"),
        ('pods "p" is forbidden: violates PodSecurity "restricted:latest": x', "Pod Security level restricted:"),
        ('pods "p" is forbidden: error looking up service account a/b: serviceaccount "b" not found', "serviceAccount"),
        ('pods "p" is forbidden: pod rejected: RuntimeClass "nvidia" not found', "podOverrides.runtimeClassName"),
        ('Internal error occurred: failed calling webhook "w": refused', "is not responding"),
        ('admission webhook "policy.example.org" denied the request: no', "an admission policy"),
        ("ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no", "an admission policy"),
        ('persistentvolumeclaims "cache-p-0" is forbidden: no', "model.cache.claimTemplate"),
        ('Pod "p" is invalid: spec.containers[0].env: Required value', "correct the field"),
        ("something new", "podOverrides"),
    ],
)
def test_each_kind_of_refusal_has_its_advice(words: str, advice: str) -> None:
    told = explain_missing_pod([creation_failure(FRAME + words)], [])
    assert told is not None
    assert told.startswith(words)
    assert advice in told


@pytest.mark.parametrize(
    ("event", "pod"),
    [
        (FRAME + QUOTA, "p-reasoning-0"),
        ("(combined from similar events): " + FRAME + QUOTA, "p-reasoning-0"),
        (f"create Claim c-p-1 for Pod p-1 in StatefulSet p failed error: {QUOTA}", "p-1"),
        (QUOTA, ""),
    ],
)
def test_the_pod_and_the_words_are_read_from_the_event(event: str, pod: str) -> None:
    assert creation_failure(event) == PodCreationFailure(pod=pod, message=QUOTA)


def test_the_first_pod_that_is_missing_speaks_whatever_the_order() -> None:
    refusals = [PodCreationFailure(pod=f"p-{n}", message=f"no {n}") for n in (10, 2, 0)]
    told = {explain_missing_pod(order, ["p-0"]) for order in (refusals, refusals[::-1])}
    assert len(told) == 1
    assert told.pop().startswith("no 2;")
    assert explain_missing_pod(refusals, ["p-0", "p-2", "p-10"]) is None


def refused_world(**changes: object) -> World:
    world = World(pool(tiers=[tier(**changes)]))
    world.step()
    world.roll("p-reasoning")
    del world.pods["p-reasoning-0"]
    world.creation_failures = {"StatefulSet-p-reasoning": (creation_failure(FRAME + QUOTA),)}
    return world


def test_a_refused_pool_says_so_in_reason_message_and_event() -> None:
    world = refused_world()
    done = world.step()
    ready = condition(world.pool["status"])
    assert (ready["status"], ready["reason"], world.pool["status"]["reason"]) == ("False", "PodsRefused", "PodsRefused")
    assert ready["message"].startswith(f"tier reasoning: 1 of 1 pods rejected by the API server: {QUOTA}; raise quota")
    assert [(e.type, e.reason) for e in done.events] == [("Warning", "PodsRefused")]
    assert world.plan().status is None


def test_serving_replicas_are_counted_beside_rejected_pods() -> None:
    world = refused_world(replicas=3)
    world.step()
    assert "1 of 3 pods rejected" in condition(world.pool["status"])["message"]
    assert condition(world.pool["status"])["message"].endswith("2 of 3 replicas serve")


def test_failing_pod_is_reported_before_a_rejected_one() -> None:
    world = refused_world(replicas=2)
    world.pods["p-reasoning-1"]["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}
    ]
    world.step()
    ready = condition(world.pool["status"])
    assert ready["reason"] == "Unschedulable"
    assert "; and 1 of 2 pods rejected by the API server" in ready["message"]


def about_pods(world: World) -> tuple[PodCreationFailuresRequest, ...]:
    return tuple(request for request in world.plan().wanted if isinstance(request, PodCreationFailuresRequest))


def test_events_are_wanted_only_where_pods_are_missing_and_nothing_stands_for_them() -> None:
    world = World(pool(tiers=[tier(replicas=2), chat_tier()]))
    assert about_pods(world) == ()
    world.step()
    assert about_pods(world) == (), "the controller has not seen it yet"
    world.roll("p-reasoning")
    world.roll("p-chat")
    assert about_pods(world) == ()
    gone = world.pods.pop("p-reasoning-1")
    (wanted,) = about_pods(world)
    assert wanted.stateful_set_uid == "StatefulSet-p-reasoning"
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:00Z"
    world.pods["p-reasoning-1"] = gone
    assert about_pods(world) == (), "its replacement waits for it, and is not refused"
