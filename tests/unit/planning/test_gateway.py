"""The Standalone gateway in plans: its objects, its condition, and that it goes when nobody asks for it."""

from __future__ import annotations

from typing import Any

import pytest

from reasoningpool.api.resource import SpecError, parse_pool
from reasoningpool.objects import ObjectKey
from reasoningpool.planning.snapshot import ApplyFailure
from support.pools import chat_tier, pool, tier
from support.world import World, condition

NAME = "p-gateway"
STANDALONE = {"mode": "Standalone"}


def world_of(**standalone: Any) -> World:
    """A pool of two tiers that serve, with a gateway whose Deployment has reported nothing yet."""
    gateway = STANDALONE | ({"standalone": standalone} if standalone else {})
    world = World(pool(tiers=[tier(), chat_tier(hostnames=["chat.example.com"])], gateway=gateway))
    world.step()
    for name in ("p-reasoning", "p-chat"):
        world.roll(name)
    return world


def report(world: World, **status: Any) -> dict[str, Any]:
    """The Deployment controller reports; answers the pool's GatewayReady after that."""
    live = world.children["Deployment", NAME]
    live["status"] = {"observedGeneration": live["metadata"]["generation"]} | status
    world.step()
    return condition(world.pool["status"], "GatewayReady")


def gateway_objects(world: World) -> set[tuple[str, str]]:
    return {key for key in world.children if key[1] == NAME or key[1].endswith("-endpoints")}


SERVING = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}


def test_a_gateway_is_created_with_the_pool_and_is_its_url() -> None:
    world = world_of()
    assert gateway_objects(world) == {
        ("ConfigMap", NAME), ("Service", NAME), ("PodDisruptionBudget", NAME), ("Deployment", NAME),
        ("Service", "p-reasoning-endpoints"), ("Service", "p-chat-endpoints"),
    }  # fmt: skip
    assert world.children["Deployment", NAME]["spec"]["replicas"] == 2
    assert world.pool["status"]["url"] == "http://p-gateway.default.svc/v1"


def test_a_settled_gateway_changes_nothing_and_the_pool_is_ready() -> None:
    world = world_of()
    assert report(world, **SERVING)["reason"] == "AllReplicasReady"
    assert condition(world.pool["status"])["status"] == "True"
    before = {key: child["metadata"]["generation"] for key, child in world.children.items()}
    done = world.step()
    assert done.status is None
    assert done.requeue_after_seconds is None
    assert {key: child["metadata"]["generation"] for key, child in world.children.items()} == before


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        ({"replicas": 2, "updatedReplicas": 2}, "Starting", "0 of 2 pods serve"),
        ({"replicas": 2, "updatedReplicas": 2, "availableReplicas": 1}, "Starting", "1 of 2 pods serve"),
        ({"replicas": 3, "updatedReplicas": 1, "availableReplicas": 2}, "RolloutInProgress", "2 of 2 pods serve"),
        (SERVING | {"observedGeneration": 0}, "RolloutInProgress", "has just changed"),
        (
            {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]},
            "PodsRefused",
            "exceeded quota",
        ),
        (
            {"conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]},
            "GatewayNotStarting",
            "kubectl describe pods -l reasoningpool.io/gateway",
        ),
    ],
)
def test_a_gateway_that_does_not_serve_keeps_the_pool_from_being_ready(status, reason: str, words: str) -> None:
    world = world_of()
    found = report(world, **status)
    assert (found["status"], found["reason"]) == ("False", reason)
    assert words in found["message"]
    assert condition(world.pool["status"])["reason"] == reason
    assert condition(world.pool["status"], "WorkloadsReady")["status"] == "True"


def test_a_refused_object_of_the_gateway_is_told_in_its_condition() -> None:
    world = world_of()
    world.failures = (ApplyFailure(key=ObjectKey("apps/v1", "Deployment", "default", NAME), message="forbidden"),)
    found = report(world, **SERVING)
    assert (found["reason"], found["message"]) == ("ApplyFailed", f"gateway: Deployment {NAME}: forbidden")


@pytest.mark.parametrize("gateway", [None, {"mode": "None"}])
def test_a_gateway_that_nobody_asks_for_is_removed(gateway) -> None:
    world = world_of()
    report(world, **SERVING)
    spec = {name: value for name, value in world.pool["spec"].items() if name != "gateway"}
    world.edit({"spec": spec | ({"gateway": gateway} if gateway else {})})
    world.step()
    assert gateway_objects(world) == set()
    assert "url" not in world.pool["status"]
    assert "GatewayReady" not in {entry["type"] for entry in world.pool["status"]["conditions"]}


def test_a_changed_route_rolls_envoy_and_no_engine() -> None:
    world = world_of()
    report(world, **SERVING)
    engines = world.children["StatefulSet", "p-chat"]["spec"]["template"]
    template = world.children["Deployment", NAME]["spec"]["template"]
    tiers = [tier(), chat_tier(hostnames=["other.example.com"])]
    world.edit({"spec": world.pool["spec"] | {"tiers": tiers}})
    world.step()
    assert world.children["Deployment", NAME]["spec"]["template"] != template
    assert world.children["StatefulSet", "p-chat"]["spec"]["template"] == engines


def test_a_tier_that_does_not_fit_stays_a_destination() -> None:
    world = world_of()
    world.edit({"spec": world.pool["spec"] | {"tiers": [tier(), chat_tier(promptTokens=9_000_000)]}})
    world.step()
    assert condition(world.pool["status"], "Sized")["status"] == "False"
    assert ("Service", "p-chat-endpoints") in world.children
    assert "p-chat-endpoints" in world.children["ConfigMap", NAME]["data"]["envoy.json"]


def test_a_host_name_of_two_tiers_is_refused() -> None:
    tiers = [tier(hostnames=["a.example.com"]), chat_tier(hostnames=["b.example.com", "a.example.com"])]
    world = World(pool(tiers=tiers, gateway=STANDALONE))
    world.step()
    accepted = condition(world.pool["status"], "Accepted")
    assert accepted["status"] == "False"
    assert "spec.tiers[1].hostnames[1]: a.example.com leads to tier reasoning already" in accepted["message"]
    assert gateway_objects(world) == set()


@pytest.mark.parametrize("name", ["pods", "gateway", "endpoints"])
def test_a_tier_cannot_have_the_name_of_another_child(name: str) -> None:
    with pytest.raises(SpecError, match="are taken by other objects of a pool"):
        parse_pool(pool(tiers=[tier(name)]))


def test_settings_of_another_mode_are_said_to_have_no_effect() -> None:
    gateway = {"mode": "None", "standalone": {"replicas": 3}}
    world = World(pool(tiers=[tier(hostnames=["a.example.com"])], gateway=gateway))
    world.step()
    message = condition(world.pool["status"], "Accepted")["message"]
    assert "spec.gateway.standalone has no effect yet: the mode is None" in message
    assert "spec.tiers[].hostnames has no effect yet" in message


def test_stated_settings_reach_the_objects() -> None:
    world = world_of(image="example.org/envoy:1", replicas=3, serviceType="LoadBalancer", imagePullSecrets=["pull"])
    spec = world.children["Deployment", NAME]["spec"]
    assert spec["replicas"] == 3
    assert spec["template"]["spec"]["containers"][0]["image"] == "example.org/envoy:1"
    assert spec["template"]["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert world.children["Service", NAME]["spec"]["type"] == "LoadBalancer"
