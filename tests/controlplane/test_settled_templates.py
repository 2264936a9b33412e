"""The API server and the StatefulSet controller agree: what `settle` keeps rolls nothing and writes nothing."""

from __future__ import annotations

import copy
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from reasoningpool.api.spec_model import ClaimTemplate, ModelCache
from reasoningpool.render import PoolIdentity, render_pool, render_tier
from reasoningpool.render.pod import probes
from reasoningpool.render.pod.environment import DIRECTORIES
from reasoningpool.resolution.types import EffectiveTier
from reasoningpool.rollout import settle
from unit.render import builders as b
from unit.render.test_manifests import TIERS

if TYPE_CHECKING:
    from cluster.core import Cluster

WAIT_SECONDS = 20


class Namespace:
    """Applies as the operator does."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.name = cluster.new_namespace("settle")

    def manifests(self, tier: EffectiveTier, intent: str) -> list[dict[str, Any]]:
        pool = PoolIdentity(name="qwen", namespace=self.name, uid="u")
        objects = [*render_pool(pool), *render_tier(pool, tier, b.sizing_plan(), intent=intent).manifests]
        for manifest in objects:
            # No pool exists here, and the garbage collector removes what is owned by nothing.
            del manifest["metadata"]["ownerReferences"]
        return objects

    def stateful_set(self, tier: EffectiveTier, intent: str) -> dict[str, Any]:
        return next(m for m in self.manifests(tier, intent) if m["kind"] == "StatefulSet")

    def apply(self, *objects: dict[str, Any]) -> None:
        for manifest in objects:
            self.cluster.kubectl(
                "apply",
                "--server-side",
                "--force-conflicts",
                "--field-manager=reasoningpool",
                "-f",
                "-",
                input=json.dumps(manifest),
            )

    def live(self, name: str = "qwen-reasoning") -> dict[str, Any]:
        """The StatefulSet once its controller has seen it."""
        until = time.monotonic() + WAIT_SECONDS
        while True:
            found: dict[str, Any] = self.cluster.get("statefulset", name, "-n", self.name)
            if found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]:
                return found
            assert time.monotonic() < until, "the StatefulSet controller has not seen the StatefulSet"
            time.sleep(0.1)

    def revisions(self) -> int:
        return len(self.cluster.get("controllerrevisions", "-n", self.name)["items"])


@pytest.fixture
def namespace(controlplane: Cluster) -> Namespace:
    return Namespace(controlplane)


@pytest.mark.parametrize("tier", TIERS.values(), ids=TIERS)
def test_every_manifest_is_accepted_and_applying_it_again_writes_nothing(
    namespace: Namespace, tier: EffectiveTier
) -> None:
    objects = namespace.manifests(tier, "a")
    namespace.apply(*objects)
    namespace.live(f"qwen-{tier.name}")
    kinds = "serviceaccount,service,statefulset,poddisruptionbudget"

    def versions() -> dict[str, str]:
        items = namespace.cluster.get(kinds, "-n", namespace.name)["items"]
        return {f"{i['kind']}/{i['metadata']['name']}": i["metadata"]["resourceVersion"] for i in items}

    def written() -> dict[str, int]:
        """The generation that each object's fields have; a controller's status is not ours to compare."""
        items = namespace.cluster.get(kinds, "-n", namespace.name)["items"]
        return {f"{i['kind']}/{i['metadata']['name']}": i["metadata"].get("generation", 0) for i in items}

    until = time.monotonic() + WAIT_SECONDS
    fields, before = written(), versions()
    namespace.apply(*objects)
    while (after := versions()) != before:  # controllers write status once, and may have done so in between
        assert time.monotonic() < until, "every apply writes"
        before = after
        namespace.apply(*objects)
    assert written() == fields
    diff = namespace.cluster.kubectl(
        "diff",
        "-n",
        namespace.name,
        "-f",
        "-",
        input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}),
        check=False,
    )
    assert diff.returncode == 0, diff.stdout


def test_an_upgrade_sends_the_live_template_and_writes_no_template(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = namespace.stateful_set(TIERS["overrides"], "a")
    namespace.apply(first)
    live = namespace.live()
    monkeypatch.setattr(probes, "_STARTUP_PERIOD", 7)
    monkeypatch.setitem(DIRECTORIES, "NEW_CACHE_DIR", "/cache/new")
    rendered = namespace.stateful_set(TIERS["overrides"], "a")
    live.get("metadata", {}).pop("managedFields", None)
    settled = settle(live, rendered)
    namespace.apply(settled)
    after = namespace.live()
    assert after["spec"]["template"] == live["spec"]["template"]
    assert after["metadata"]["generation"] == live["metadata"]["generation"]
    assert after["status"]["updateRevision"] == live["status"]["updateRevision"]
    assert namespace.revisions() == 1
    # Settled: from here on nothing is written, not even ownership.
    namespace.apply(settle(after, rendered))
    assert namespace.live()["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
    # Back to the older operator: ownership shrinks, nothing else.
    monkeypatch.undo()
    namespace.apply(settle(namespace.live(), first))
    downgraded = namespace.live()
    assert downgraded["spec"] == live["spec"]
    assert namespace.revisions() == 1


def test_a_users_change_after_an_upgrade_rolls_once(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    namespace.apply(namespace.stateful_set(b.tier(), "a"))
    monkeypatch.setitem(DIRECTORIES, "NEW_CACHE_DIR", "/cache/new")
    namespace.apply(settle(namespace.live(), namespace.stateful_set(b.tier(), "a")))
    changed = b.tier(engine=b.engine(image="other:1"), overrides=None)
    rendered = namespace.stateful_set(changed, "b")
    namespace.apply(settle(namespace.live(), rendered))
    live = namespace.live()
    container = live["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "other:1"
    assert "NEW_CACHE_DIR" in {variable["name"] for variable in container["env"]}
    assert namespace.revisions() == 2
    namespace.apply(settle(live, rendered))
    assert namespace.live()["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]


def test_what_somebody_else_put_into_the_template_survives(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace.apply(namespace.stateful_set(b.tier(), "a"))
    namespace.live()
    namespace.cluster.kubectl("rollout", "restart", "statefulset/qwen-reasoning", "-n", namespace.name)
    monkeypatch.setitem(DIRECTORIES, "NEW_CACHE_DIR", "/cache/new")
    rendered = namespace.stateful_set(b.tier(), "a")
    namespace.apply(settle(namespace.live(), rendered))
    monkeypatch.undo()
    namespace.apply(settle(namespace.live(), namespace.stateful_set(b.tier(), "a")))
    annotations = namespace.live()["spec"]["template"]["metadata"]["annotations"]
    assert "kubectl.kubernetes.io/restartedAt" in annotations


def test_replicas_set_by_somebody_else_survive(namespace: Namespace) -> None:
    namespace.apply(namespace.stateful_set(b.tier(), "a"))
    namespace.cluster.kubectl("scale", "statefulset/qwen-reasoning", "--replicas=3", "-n", namespace.name)
    namespace.apply(settle(namespace.live(), namespace.stateful_set(b.tier(), "a")))
    assert namespace.live()["spec"]["replicas"] == 3


def test_pods_pass_the_restricted_profile_of_the_api_server(namespace: Namespace) -> None:
    namespace.cluster.kubectl("label", "namespace", namespace.name, "pod-security.kubernetes.io/enforce=restricted")
    namespace.apply(*namespace.manifests(b.tier(), "a"))
    until = time.monotonic() + WAIT_SECONDS
    while not (pods := namespace.cluster.get("pods", "-n", namespace.name)["items"]):
        assert time.monotonic() < until, namespace.cluster.get("events", "-n", namespace.name)["items"]
        time.sleep(0.1)
    assert pods[0]["spec"]["containers"][0]["name"] == "engine"


def test_an_upgrade_leaves_claim_templates_alone(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    tier = b.tier(model=b.model(cache=ModelCache(claim_template=ClaimTemplate(size="1Gi"))))
    namespace.apply(namespace.stateful_set(tier, "a"))
    live = namespace.live()
    monkeypatch.setitem(DIRECTORIES, "NEW_CACHE_DIR", "/cache/new")
    settled = settle(live, namespace.stateful_set(tier, "a"))
    assert settled != live
    namespace.apply(copy.deepcopy(settled))
    assert namespace.live()["spec"] == live["spec"]
    assert namespace.revisions() == 1
