"""What the executor leaves behind on a real API server: who owns which field, and which pods live on."""

from __future__ import annotations

import asyncio
import time

import pytest

from controlplane.operator_support import (
    TEST_KINDS,
    Parts,
    Workload,
    eventually,
    key,
    owned_spec,
    owners_of_replicas,
    parts,
    plan_of,
)
from reasoningpool.adapters.errors import NotFound, Permanent
from reasoningpool.adapters.gate import Allowance
from reasoningpool.adapters.kube import Kube
from reasoningpool.adapters.login import connect
from reasoningpool.api import names
from reasoningpool.objects import Manifest, ObjectKey
from reasoningpool.planning.actions import Apply, Delete, Plan, Scale, SetLabel
from reasoningpool.reconcile.apply.executor import Executor, NotLeading

SCALE, MAIN = names.SCALE_FIELD_MANAGER, names.FIELD_MANAGER


@pytest.fixture
async def world(crd_cluster, apiserver):
    namespace = crd_cluster.new_namespace("executor")
    async with parts(crd_cluster.kubeconfig, apiserver, namespace) as made:
        yield made


def apply(manifest: Manifest) -> Apply:
    return Apply(manifest=manifest, why="a test")


def engines(world: Parts, replicas: int | None = None, **changes) -> Workload:
    made = Apply(manifest=world.stateful_set(**changes), orphan_on_immutable=True, why="a test")
    return Workload(made, replicas)


def live(world: Parts, name="p-a"):
    return world.cluster.get("StatefulSet", name)


async def settled(world: Parts, *wanted: Apply | Workload, **more):
    """Carry out, and look at what the controllers made of it."""
    report = await world.carry_out(*wanted, **more)
    assert (report.failures, report.transient) == ((), [])
    await world.look()


# -- who owns what -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1, 3])
async def test_new_stateful_set_starts_with_replicas_owned_by_the_scale_manager(world, number):
    await settled(world, engines(world, number))
    made = live(world)
    assert made["spec"]["replicas"] == number
    assert made["metadata"]["generation"] == 1 or number == 1
    assert owners_of_replicas(made) == {SCALE}
    assert owned_spec(made, SCALE) == {"f:replicas"}
    assert owned_spec(made, MAIN) >= {"f:template", "f:selector", "f:serviceName", "f:podManagementPolicy"}


async def test_without_a_number_nobody_owns_it_and_another_autoscaler_may_set_it(world):
    await settled(world, engines(world))
    assert live(world)["spec"]["replicas"] == 1
    assert owners_of_replicas(live(world)) == set()
    world.cluster.patch("StatefulSet", "p-a", {"spec": {"replicas": 4}}, manager="autoscaler")
    await world.look()
    await settled(world, engines(world, image="engine:2"))
    assert live(world)["spec"]["replicas"] == 4
    assert owners_of_replicas(live(world)) == {"autoscaler"}


async def test_a_number_that_is_given_up_stays_as_it_is(world):
    await settled(world, engines(world, 3))
    await settled(world, engines(world))
    await settled(world, engines(world, image="engine:2"))
    assert live(world)["spec"]["replicas"] == 3
    world.cluster.patch("StatefulSet", "p-a", {"spec": {"replicas": 2}}, manager="autoscaler")
    await world.look()
    await settled(world, engines(world, image="engine:3"))
    assert live(world)["spec"]["replicas"] == 2


async def test_scaling_touches_nothing_else(world):
    await settled(world, engines(world, 2))
    before = live(world)
    await settled(world, engines(world, 4))
    after = live(world)
    assert after["spec"] == before["spec"] | {"replicas": 4}
    assert owners_of_replicas(after) == {SCALE}


async def test_a_number_that_somebody_else_set_is_taken_back(world):
    await settled(world, engines(world, 2))
    world.cluster.patch("StatefulSet", "p-a", {"spec": {"replicas": 7}}, manager="kubectl")
    await world.look()
    await settled(world, engines(world, 2))
    assert live(world)["spec"]["replicas"] == 2
    assert owners_of_replicas(live(world)) == {SCALE}


@pytest.mark.parametrize("steps", [1, 2])
async def test_dying_within_the_creation_leads_to_the_same_end(world, steps, monkeypatch):
    real, sent = world.kube.apply, []

    async def dying(manifest, **kwargs):
        if len(sent) == steps:
            raise asyncio.CancelledError
        sent.append(manifest)
        return await real(manifest, **kwargs)

    monkeypatch.setattr(world.kube, "apply", dying)
    with pytest.raises(asyncio.CancelledError):
        await world.carry_out(engines(world, 3))
    monkeypatch.undo()
    assert live(world)["spec"]["replicas"] == 3
    world.restarted()
    await world.look()
    await settled(world, engines(world, 3))
    assert owners_of_replicas(live(world)) == {SCALE}
    assert owned_spec(live(world), SCALE) == {"f:replicas"}
    assert live(world)["metadata"]["generation"] == 1


CLAIM = {
    "metadata": {"name": "cache"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


async def killed_within_creation(world: Parts, monkeypatch, steps: int, wanted: Workload) -> None:
    """What a SIGKILL after so many requests leaves, seen by a new process."""
    real, sent = world.kube.apply, []

    async def dying(manifest, **kwargs):
        if len(sent) == steps:
            raise asyncio.CancelledError
        sent.append(manifest)
        return await real(manifest, **kwargs)

    monkeypatch.setattr(world.kube, "apply", dying)
    with pytest.raises(asyncio.CancelledError):
        await world.carry_out(wanted)
    monkeypatch.undo()
    world.restarted()
    await world.look()


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("replicas", [None, 1, 3])
async def test_what_the_pool_dropped_while_the_creation_was_cut_short_is_dropped(world, steps, replicas, monkeypatch):
    first = engines(world, 3)
    first.manifest["metadata"]["annotations"] = {"old": "note"}
    pod = first.manifest["spec"]["template"]["spec"]
    pod["containers"][0]["env"] = [{"name": "OLD", "value": "1"}, {"name": "KIND", "value": "1"}]
    pod["volumes"] = [{"name": "home", "emptyDir": {}}]
    await killed_within_creation(world, monkeypatch, steps, first)
    second = engines(world, replicas)
    # A union of both would be invalid: a variable with two sources, a volume of two types.
    source = {"fieldRef": {"fieldPath": "metadata.name"}}
    second.manifest["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "KIND", "valueFrom": source}]
    second.manifest["spec"]["template"]["spec"]["volumes"] = [{"name": "home", "configMap": {"name": "c"}}]
    await settled(world, second)
    made = live(world)
    assert made["spec"]["replicas"] == (replicas or 3)
    assert "old" not in made["metadata"].get("annotations", {})
    pod = made["spec"]["template"]["spec"]
    assert [variable["name"] for variable in pod["containers"][0]["env"]] == ["KIND"]
    assert "emptyDir" not in pod["volumes"][0]
    assert owned_spec(made, SCALE) == {"f:replicas"}


@pytest.mark.parametrize("steps", [1, 2])
async def test_claims_that_the_pool_dropped_while_the_creation_was_cut_short_are_dropped(world, steps, monkeypatch):
    first = engines(world, 3)
    first.manifest["spec"]["volumeClaimTemplates"] = [CLAIM]
    await killed_within_creation(world, monkeypatch, steps, first)
    before = await world.pods(3)
    await settled(world, engines(world, 3))
    assert "volumeClaimTemplates" not in live(world)["spec"]
    assert owned_spec(live(world), SCALE) == {"f:replicas"}
    await adopted(world, 3)
    assert world.cluster.pods() == before


async def test_creation_costs_three_requests_even_if_other_pools_come_in_between(world):
    wanted = engines(world, 3)
    plan = plan_of(wanted, apply(world.service()))
    report = await world.executor.carry_out(world.name, plan, world.memory, others_wait=lambda: True)
    assert not report.complete
    await settled(world, wanted)
    assert world.kube.requests["apply", "StatefulSet"] == 3
    assert world.kube.requests["merge", "StatefulSet"] == 0


# -- nothing to do, nothing sent -----------------------------------------------------------------------------------


async def test_what_is_settled_asks_for_nothing(world):
    wanted = (engines(world, 2), apply(world.service()))
    await settled(world, *wanted)
    await world.pods(2)
    before = sum(world.kube.requests.values())
    for _ in range(10):
        await world.carry_out(*wanted)
    assert sum(world.kube.requests.values()) == before


async def test_a_status_write_of_a_controller_is_no_reason_to_apply(world):
    await settled(world, engines(world, 2))
    await world.pods(2)
    status = {"status": {"replicas": 2, "readyReplicas": 1}}
    path = world.cluster.path("StatefulSet", "p-a") + "/status"
    content = "application/merge-patch+json"
    assert world.cluster.api.request("PATCH", path, status, content_type=content).ok
    await world.look()
    before = world.kube.requests["apply", "StatefulSet"]
    await world.carry_out(engines(world, 2))
    assert world.kube.requests["apply", "StatefulSet"] == before


async def test_a_new_process_applies_once_and_writes_nothing(world):
    wanted = (engines(world, 2), apply(world.service()))
    await settled(world, *wanted)
    await world.pods(2)
    eventually(lambda: live(world).get("status", {}).get("observedGeneration") == 1, "the controller to settle")
    before = world.cluster.versions("StatefulSet", "Service")
    world.restarted()
    await world.look()
    await settled(world, *wanted)
    assert world.cluster.versions("StatefulSet", "Service") == before


async def test_somebodys_edit_is_taken_back(world):
    await settled(world, apply(world.service(port=8000)))
    world.cluster.patch("Service", "p-a", {"metadata": {"labels": {names.LABEL_POOL: "p", "theirs": "kept"}}})
    path, content = world.cluster.path("Service", "p-a"), "application/strategic-merge-patch+json"
    edit = {"spec": {"selector": {names.LABEL_TIER: "b"}}}
    assert world.cluster.api.request("PATCH", path, edit, content_type=content).ok
    await world.look()
    await settled(world, apply(world.service(port=8000)))
    after = world.cluster.get("Service", "p-a")
    assert after["spec"]["selector"][names.LABEL_TIER] == "a"
    assert after["metadata"]["labels"]["theirs"] == "kept"


async def test_a_deleted_child_is_made_again(world):
    await settled(world, apply(world.service()))
    world.cluster.delete("Service", "p-a")
    await world.look()
    await settled(world, apply(world.service()))
    assert world.cluster.get("Service", "p-a")


# -- labels that somebody takes off -----------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [[names.LABEL_POOL], [names.LABEL_MANAGED_BY], list(names.pool_selector("p"))])
@pytest.mark.parametrize("restarted", [False, True])
async def test_labels_are_put_back_and_the_object_is_known_again(world, lost, restarted):
    wanted = (engines(world, 2), apply(world.service()), apply(account(world)))
    await settled(world, *wanted)
    before = live(world)
    for kind, name in (("StatefulSet", "p-a"), ("Service", "p-a"), ("ServiceAccount", "p-engine")):
        edited = world.cluster.patch(kind, name, {"metadata": {"labels": dict.fromkeys(lost)}})
        watched(world, edited, lost)
    world.cluster.patch("StatefulSet", "p-a", {"spec": {"replicas": 7}}, manager="kubectl")
    if restarted:
        world.restarted()
    for _ in range(2):
        report = await world.carry_out(*wanted)
        assert (report.failures, report.transient) == ((), [])
    assert len(world.store.children(world.name)) == 3
    for kind, name in (("StatefulSet", "p-a"), ("Service", "p-a"), ("ServiceAccount", "p-engine")):
        assert world.cluster.get(kind, name)["metadata"]["labels"].items() >= names.pool_selector("p").items()
    after = live(world)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"] == before["spec"]
    assert owned_spec(after, SCALE) == {"f:replicas"}


def account(world: Parts):
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": world.meta("p-engine")}


def watched(world: Parts, edited, lost) -> None:
    """What a watch with our selector tells of an edit of labels."""
    if names.LABEL_MANAGED_BY not in lost:
        world.store.upsert(edited)
        return
    version = int(edited["metadata"]["resourceVersion"])
    world.store.remove(world.name, ObjectKey.of(edited), edited["metadata"]["uid"], version=version)


@pytest.mark.parametrize("number", [None, 1, 2])
async def test_stateful_set_without_labels_keeps_its_live_template(world, number):
    await settled(world, engines(world, number))
    watched(world, world.cluster.patch("StatefulSet", "p-a", {"metadata": {"labels": {names.LABEL_POOL: None}}}), [])
    # What a newer operator renders for a StatefulSet of which it sees nothing.
    await world.carry_out(engines(world, number, image="engine:2"))
    assert live(world)["spec"]["template"]["spec"]["containers"][0]["image"] == "engine:1"
    assert [child["kind"] for child in world.store.children(world.name)] == ["StatefulSet"]


# -- edits that merge with ours into something invalid -------------------------------------------------------------


def edit(world: Parts, kind: str, name: str, *operations) -> None:
    path, content = world.cluster.path(kind, name), "application/json-patch+json"
    assert world.cluster.api.request("PATCH", path, list(operations), content_type=content, fieldManager="kubectl").ok


async def test_a_port_whose_number_somebody_changed_is_changed_back_in_the_same_service(world):
    await settled(world, apply(world.service()))
    before = world.cluster.get("Service", "p-a")
    edit(world, "Service", "p-a", {"op": "replace", "path": "/spec/ports/0/port", "value": 9000})
    await world.look()
    await settled(world, apply(world.service()))
    after = world.cluster.get("Service", "p-a")
    assert after["spec"] == before["spec"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    sent = sum(world.kube.requests.values())
    await world.carry_out(apply(world.service()))
    assert sum(world.kube.requests.values()) == sent


async def test_a_port_is_changed_back_though_the_labels_are_gone_too(world):
    await settled(world, apply(world.service()))
    before = world.cluster.get("Service", "p-a")
    edit(
        world,
        "Service",
        "p-a",
        {"op": "replace", "path": "/spec/ports/0/port", "value": 9000},
        {"op": "remove", "path": "/metadata/labels"},
    )
    world.restarted()
    await world.look()
    await settled(world, apply(world.service()))
    assert world.cluster.get("Service", "p-a")["spec"] == before["spec"]


async def test_a_volume_and_a_variable_of_another_kind_are_changed_back(world):
    wanted = engines(world, 2)
    pod = wanted.manifest["spec"]["template"]["spec"]
    pod["containers"][0]["env"] = [{"name": "KIND", "value": "1"}]
    pod["volumes"] = [{"name": "home", "emptyDir": {}}]
    await settled(world, wanted)
    before, at = live(world), "/spec/template/spec"
    edit(
        world,
        "StatefulSet",
        "p-a",
        {"op": "replace", "path": f"{at}/volumes/0", "value": {"name": "home", "hostPath": {"path": "/"}}},
        {
            "op": "replace",
            "path": f"{at}/containers/0/env/0",
            "value": {"name": "KIND", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        },
    )
    await world.look()
    await settled(world, wanted)
    assert live(world)["spec"] == before["spec"]
    assert live(world)["metadata"]["uid"] == before["metadata"]["uid"]
    assert owned_spec(live(world), SCALE) == {"f:replicas"}


async def test_a_disruption_budget_turned_round_is_turned_back(world):
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": names.tier_selector("p", "a")}}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": world.meta("p-a"), "spec": spec}
    await settled(world, apply(budget))
    world.cluster.patch("PodDisruptionBudget", "p-a", {"spec": {"maxUnavailable": None, "minAvailable": 1}})
    await world.look()
    await settled(world, apply(budget))
    assert world.cluster.get("PodDisruptionBudget", "p-a")["spec"] == spec


async def test_foreign_additions_stay(world):
    await settled(world, apply(world.service()), engines(world, 1))
    port = {"name": "metrics", "port": 9000, "protocol": "TCP", "targetPort": 9000}
    edit(world, "Service", "p-a", {"op": "add", "path": "/spec/ports/-", "value": port})
    theirs = {"name": "sidecar", "image": "theirs:1"}
    edit(world, "StatefulSet", "p-a", {"op": "add", "path": "/spec/template/spec/containers/-", "value": theirs})
    await world.look()
    await settled(world, apply(world.service()), engines(world, 1))
    assert port in world.cluster.get("Service", "p-a")["spec"]["ports"]
    names_of = [entry["name"] for entry in live(world)["spec"]["template"]["spec"]["containers"]]
    assert sorted(names_of) == ["engine", "sidecar"]


async def test_a_service_of_somebody_else_with_a_port_of_our_name_is_called_theirs(world):
    theirs = world.service(port=9000)
    theirs["metadata"] |= {"labels": {"app": "theirs"}, "ownerReferences": []}
    theirs["spec"]["selector"] = {names.LABEL_POOL: "p", names.LABEL_TIER: "a"}
    await world.kube.create(theirs, manager="them")
    before = world.cluster.get("Service", "p-a")
    (failure,) = (await world.carry_out(apply(world.service()))).failures
    assert "does not belong to this pool" in failure.message
    assert world.cluster.get("Service", "p-a") == before


# -- immutable fields ----------------------------------------------------------------------------------------------


async def test_an_immutable_field_changes_under_pods_that_live_on(world):
    await settled(world, engines(world, 3))
    before, old = await world.pods(3), live(world)
    await settled(world, engines(world, 3, service="another"))
    new = live(world)
    assert new["spec"]["serviceName"] == "another"
    assert new["spec"]["replicas"] == 3
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert owners_of_replicas(new) == {SCALE}
    await adopted(world, 3)
    assert world.cluster.pods() == before


async def adopted(world: Parts, count: int):
    """Wait until the StatefulSet that is there controls so many pods and has counted them."""
    uid = live(world)["metadata"]["uid"]

    def done():
        owners = [
            owner["uid"]
            for item in world.cluster.list("Pod")
            for owner in item["metadata"].get("ownerReferences", ())
            if owner.get("controller")
        ]
        return owners == [uid] * count and live(world).get("status", {}).get("replicas") == count

    await asyncio.to_thread(eventually, done, f"{count} pods of the new set")


async def test_a_number_that_another_autoscaler_set_survives_the_replacement(world):
    await settled(world, engines(world))
    world.cluster.patch("StatefulSet", "p-a", {"spec": {"replicas": 3}}, manager="autoscaler")
    before = await world.pods(3)
    await settled(world, engines(world, service="another"))
    assert live(world)["spec"]["replicas"] == 3
    await adopted(world, 3)
    assert world.cluster.pods() == before


@pytest.mark.parametrize("number", [None, 1, 3])
async def test_dying_between_deletion_and_creation_costs_no_pod(world, number):
    await settled(world, engines(world, 3))
    before = await world.pods(3)
    world.cluster.delete("StatefulSet", "p-a", propagation="Orphan")
    eventually(lambda: live(world) is None, "the set to be gone")
    world.restarted()
    await world.look()
    await world.carry_out(engines(world, number, service="another"))
    assert live(world)["spec"]["replicas"] == 3
    await adopted(world, 3)
    assert world.cluster.pods() == before


async def test_a_set_that_is_still_being_deleted_is_waited_for_and_then_made_anew(world, crd_cluster):
    await settled(world, engines(world, 2))
    before = await world.pods(2)
    crd_cluster.kill("kube-controller-manager")
    try:
        impatient = Executor(world.kube, world.store, gone_timeout=0.5)
        world.executor = impatient
        report = await world.carry_out(engines(world, 2, service="another"))
        assert "is still being deleted" in report.transient[0].message
    finally:
        crd_cluster.start("kube-controller-manager")
    eventually(lambda: live(world) is None, "the garbage collector to finish", 90)
    world.restarted()
    await world.look()
    await settled(world, engines(world, 2, service="another"))
    await adopted(world, 2)
    assert world.cluster.pods() == before


def owners(world: Parts) -> list[set[str]]:
    return [{o["uid"] for o in item["metadata"].get("ownerReferences", ())} for item in world.cluster.list("Pod")]


async def test_set_whose_successor_is_refused_is_not_deleted(world):
    await settled(world, engines(world, 2))
    before, old = await world.pods(2), live(world)
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "sets", "namespace": world.name.namespace},
    }
    path = f"/api/v1/namespaces/{world.name.namespace}/resourcequotas"
    answer = world.cluster.api.request("POST", path, quota | {"spec": {"hard": {"count/statefulsets.apps": "0"}}})
    assert answer.ok, answer.message
    counted = lambda: (world.cluster.api.request("GET", f"{path}/sets").body.get("status") or {}).get("used")  # noqa: E731
    await asyncio.to_thread(eventually, counted, "the quota to be counted")
    (failure,) = (await world.carry_out(engines(world, 2, service="another"))).failures
    assert "the StatefulSet that would replace it is refused" in failure.message
    assert "quota" in failure.message
    assert live(world)["metadata"]["uid"] == old["metadata"]["uid"]
    assert world.cluster.pods() == before


async def test_set_is_put_back_when_its_successor_is_refused_after_all(world, monkeypatch):
    await settled(world, engines(world, 2))
    before, real = await world.pods(2), world.kube.apply

    async def refusing(manifest, **more):
        if manifest.get("spec", {}).get("serviceName") == "another" and live(world) is None:
            raise Permanent("a policy of the cluster says no", status=403)
        return await real(manifest, **more)

    monkeypatch.setattr(world.kube, "apply", refusing)
    (failure,) = (await world.carry_out(engines(world, 2, service="another"))).failures
    assert "a policy" in failure.message
    assert live(world)["spec"]["serviceName"] == "p-a-pods"
    await adopted(world, 2)
    monkeypatch.undo()
    world.memory.refused.clear()
    await world.look()
    await settled(world, engines(world, 2, service="another"))
    await adopted(world, 2)
    await settled(world, engines(world, 2, service="another"))
    assert live(world)["spec"]["serviceName"] == "another"
    assert owners(world) == [{live(world)["metadata"]["uid"]}] * 2
    assert world.cluster.pods() == before


@pytest.mark.parametrize("restarted", [False, True])
async def test_pods_without_a_set_are_removed_with_the_pool(world, monkeypatch, restarted):
    await settled(world, engines(world, 2))
    await world.pods(2)

    async def dying(*_args, **_more):
        raise asyncio.CancelledError

    monkeypatch.setattr(world.executor._sets, "_create", dying)
    with pytest.raises(asyncio.CancelledError):
        await world.carry_out(engines(world, 2, service="another"))
    assert live(world) is None
    assert owners(world) == [{world.pool["metadata"]["uid"]}] * 2
    if restarted:
        world.restarted()
        await world.look()
    path = f"/api/v1/namespaces/{world.name.namespace}/configmaps/p"
    assert world.cluster.api.request("DELETE", path, None).ok
    await asyncio.to_thread(eventually, lambda: not world.cluster.pods(), "the pods to be removed with their pool")


async def test_objects_with_copied_labels_are_not_taken_over(world):
    theirs, service = world.stateful_set(), world.service()
    for manifest in (theirs, service):
        manifest["metadata"]["ownerReferences"] = []
        await world.kube.create(manifest, manager="them")
    await world.look()
    before = live(world)["spec"], world.cluster.get("Service", "p-a")["spec"]
    report = await world.carry_out(engines(world, 5, image="engine:2"), apply(world.service(port=9000)))
    assert ["does not belong to this pool" in failure.message for failure in report.failures] == [True, True]
    assert (live(world)["spec"], world.cluster.get("Service", "p-a")["spec"]) == before


async def test_immutable_change_without_replacement_is_reported_and_scaling_goes_on(world):
    await settled(world, engines(world, 1))
    stubborn = Workload(apply(world.stateful_set(service="another")), replicas=2)
    report = await world.carry_out(stubborn)
    (failure,) = report.failures
    assert failure.key.name == "p-a"
    assert failure.message == "spec.serviceName: field is immutable"
    assert live(world)["spec"]["replicas"] == 2


# -- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.field_report("K18")
async def test_rejected_child_does_not_block_others_and_is_not_resent(world):
    bad = world.service("p-bad")
    bad["spec"]["ports"][0]["port"] = 99999
    wanted = (apply(bad), apply(world.service()), engines(world, 1))
    report = await world.carry_out(*wanted)
    assert [failure.key.name for failure in report.failures] == ["p-bad"]
    assert "spec.ports[0].port" in report.failures[0].message
    assert live(world)
    assert world.cluster.get("Service", "p-a")
    await world.look()
    sent = world.kube.requests["apply", "Service"]
    assert (await world.carry_out(*wanted)).failures == report.failures
    assert world.kube.requests["apply", "Service"] == sent


@pytest.mark.field_report("K18")
async def test_changed_child_is_applied_at_once_and_clears_the_failure(world):
    bad = world.service()
    bad["spec"]["ports"][0]["port"] = 99999
    assert (await world.carry_out(apply(bad))).failures
    assert (await world.carry_out(apply(world.service()))).failures == ()


@pytest.mark.field_report("K18")
async def test_unknown_field_is_permanent_although_the_server_answers_500(world):
    strange = world.service()
    strange["spec"]["bogus"] = True
    (failure,) = (await world.carry_out(apply(strange))).failures
    assert "bogus" in failure.message


async def test_kind_that_is_not_installed_is_reported(world):
    monitor = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": world.meta("p"),
        "spec": {},
    }
    (failure,) = (await world.carry_out(apply(monitor))).failures
    assert failure.message == "the cluster does not serve PodMonitor (monitoring.coreos.com/v1)"


async def test_text_beyond_the_bmp_arrives_as_it_was_written(world):
    engine = world.stateful_set()
    engine["metadata"]["annotations"] = {"note": '😀 漢 é "quoted"\nline'}
    await settled(world, apply(engine))
    assert live(world)["metadata"]["annotations"]["note"] == engine["metadata"]["annotations"]["note"]


async def test_no_pods_run_under_an_account_of_somebody_else(world):
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": world.meta("p-engine")}
    theirs = {**account, "metadata": {"name": "p-engine", "namespace": account["metadata"]["namespace"]}}
    await world.kube.create(theirs, manager="them")
    engine = world.stateful_set()
    engine["spec"]["template"]["spec"]["serviceAccountName"] = "p-engine"
    report = await world.carry_out(apply(account), apply(engine))
    assert {failure.key.kind for failure in report.failures} == {"ServiceAccount", "StatefulSet"}
    assert [failure.key.kind for failure in report.failures] == ["ServiceAccount", "StatefulSet"]
    assert "does not belong to this pool" in report.failures[0].message
    assert report.failures[1].message == "waits for ServiceAccount p-engine"
    assert world.cluster.get("StatefulSet", engine["metadata"]["name"]) is None


async def test_an_object_that_was_in_the_way_is_made_soon_after_it_is_gone(world):
    theirs = {**account(world), "metadata": {"name": "p-engine", "namespace": world.cluster.namespace}}
    await world.kube.create(theirs, manager="them")
    engine = engines(world, 1)
    engine.manifest["spec"]["template"]["spec"]["serviceAccountName"] = "p-engine"
    wanted = (apply(account(world)), engine)
    for _ in range(6):  # as long as it stands, ever later, but never later than this
        assert (await world.carry_out(*wanted)).failures
        assert 0 < world.memory.next_retry() - time.monotonic() <= 30
        world.memory.refused[key(account(world))].retry_at = 0.0
    assert world.memory.next_retry() == 0.0
    assert world.memory.refused[key(account(world))].tries == 6
    world.cluster.delete("ServiceAccount", "p-engine")
    assert (await world.carry_out(*wanted)).failures == ()
    assert live(world), "what waited for it comes in the same cycle"


async def test_a_cause_that_holds_up_everything_is_tried_by_all_only_so_often(world):
    world.executor._retries = Allowance(10.0, clock=lambda: 0.0)  # a slow machine would earn more tries meanwhile
    bad = [apply(world.service(f"p-{number}", port=99999)) for number in range(30)]
    await world.carry_out(*bad)
    sent = world.kube.requests["apply", "Service"]
    for refused in world.memory.refused.values():
        refused.retry_at = 0.0
    await world.carry_out(*bad)
    assert world.kube.requests["apply", "Service"] - sent == 10
    assert time.monotonic() < world.memory.next_retry() <= time.monotonic() + 30


async def test_foreign_service_account_is_not_taken_over(world):
    ours = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": world.meta("p-engine")}
    theirs = {**ours, "metadata": {"name": "p-engine", "namespace": ours["metadata"]["namespace"]}}
    await world.kube.create(theirs, manager="them")
    before = world.cluster.get("ServiceAccount", "p-engine")
    (failure,) = (await world.carry_out(apply(ours))).failures
    assert "does not belong to this pool" in failure.message
    assert world.cluster.get("ServiceAccount", "p-engine") == before


async def test_an_object_of_somebody_else_is_not_taken_over(world):
    theirs = world.service()
    theirs["metadata"] |= {"labels": {"app": "theirs"}, "ownerReferences": []}
    theirs["spec"] = {"selector": {"app": "theirs"}, "ports": [{"name": "http", "port": 8000, "targetPort": 1}]}
    await world.kube.create(theirs, manager="them")
    before = world.cluster.get("Service", "p-a")
    ours = world.service()
    ours["spec"]["ports"][0]["targetPort"] = 8000
    (failure,) = (await world.carry_out(apply(ours))).failures
    assert "does not belong to this pool" in failure.message
    assert world.cluster.get("Service", "p-a") == before


async def test_our_own_object_is_taken_back_even_without_its_labels(world):
    await settled(world, apply(world.service()))
    world.cluster.patch("Service", "p-a", {"metadata": {"labels": {names.LABEL_POOL: None}}})
    edit = [{"op": "replace", "path": "/spec/ports/0/name", "value": "other"}]
    path, content = world.cluster.path("Service", "p-a"), "application/json-patch+json"
    assert world.cluster.api.request("PATCH", path, edit, content_type=content).ok
    world.restarted()
    await world.look()
    assert (await world.carry_out(apply(world.service()))).failures == ()
    after = world.cluster.get("Service", "p-a")
    assert after["metadata"]["labels"][names.LABEL_POOL] == "p"


async def test_a_missing_permission_names_verb_and_resource(world, crd_cluster):
    namespace = world.cluster.namespace
    token = crd_cluster.kubectl("create", "token", "default", "-n", namespace).stdout.strip()
    world.kube._api.configuration.api_key["BearerToken"] = f"Bearer {token}"
    (failure,) = (await world.carry_out(apply(world.service()))).failures
    assert 'cannot patch resource "services"' in failure.message
    assert f'in the namespace "{namespace}"' in failure.message
    assert "rbac.yaml" in failure.message


# -- deletions -----------------------------------------------------------------------------------------------------


async def test_deletes_remove_what_was_seen_and_nothing_else(world):
    await settled(world, apply(world.service()), apply(world.service("p-b")))
    seen = {item["metadata"]["name"]: item["metadata"]["uid"] for item in world.cluster.list("Service")}
    delete = Delete(why="a test", key=ObjectKey("v1", "Service", world.cluster.namespace, "p-b"), uid=seen["p-b"])
    other = Delete(
        why="a test", key=ObjectKey("v1", "Service", world.cluster.namespace, "p-a"), uid="00000000-0000-0000-0000-0"
    )
    report = await world.carry_out(deletes=(delete, other))
    assert (report.failures, report.transient) == ((), [])
    assert world.cluster.get("Service", "p-b") is None
    assert world.cluster.get("Service", "p-a")["metadata"]["uid"] == seen["p-a"]


@pytest.mark.field_report("K01")
async def test_deleting_an_absent_object_succeeds(world):
    await settled(world, apply(world.service()))
    uid = world.cluster.get("Service", "p-a")["metadata"]["uid"]
    delete = Delete(why="a test", key=ObjectKey("v1", "Service", world.cluster.namespace, "p-a"), uid=uid)
    for _ in range(2):
        report = await world.carry_out(deletes=(delete,))
        assert (report.failures, report.transient) == ((), [])


async def test_pod_deletions_spare_a_pod_of_the_same_name(world):
    await settled(world, engines(world, 1))
    before = await world.pods(1)
    stale = Delete(
        why="a test", key=ObjectKey("v1", "Pod", world.cluster.namespace, "p-a-0"), uid="00000000-0000-0000-0000-0"
    )
    await world.carry_out(engines(world, 1), deletes=(stale,))
    assert world.cluster.pods() == before
    right = Delete(why="a test", key=stale.key, uid=before["p-a-0"])
    await world.carry_out(engines(world, 1), deletes=(right,))
    eventually(lambda: world.cluster.pods().get("p-a-0") not in {None, before["p-a-0"]}, "another pod")


# -- labels of pods ------------------------------------------------------------------------------------------------

DRAINING = "reasoningpool.io/draining"


def labelled(world: Parts, uid: str, value: str | None, name: str = "p-a-0") -> SetLabel:
    pod = ObjectKey("v1", "Pod", world.cluster.namespace, name)
    return SetLabel(key=pod, uid=uid, label=DRAINING, value=value, why="a test")


async def test_label_of_a_pod_is_set_and_removed_under_a_manager_of_its_own(world):
    wanted = engines(world, 1)
    await settled(world, wanted)
    uid = (await world.pods(1))["p-a-0"]
    before = world.cluster.get("Pod", "p-a-0")["metadata"]["labels"]
    await settled(world, wanted, labels=(labelled(world, uid, "true"),))
    meta = world.cluster.get("Pod", "p-a-0")["metadata"]
    assert meta["labels"] == before | {DRAINING: "true"}
    (owned,) = [entry for entry in meta["managedFields"] if entry["manager"] == names.LABEL_FIELD_MANAGER]
    assert owned["fieldsV1"] == {"f:metadata": {"f:labels": {f"f:{DRAINING}": {}}}}
    await settled(world, wanted, labels=(labelled(world, uid, None),))
    assert world.cluster.get("Pod", "p-a-0")["metadata"]["labels"] == before


async def test_label_that_is_there_costs_no_request(world):
    wanted = engines(world, 1)
    await settled(world, wanted)
    uid = (await world.pods(1))["p-a-0"]
    for value in ("true", None):
        await settled(world, wanted, labels=(labelled(world, uid, value),))
        sent = sum(world.kube.requests.values())
        await world.carry_out(wanted, labels=(labelled(world, uid, value),))
        assert sum(world.kube.requests.values()) == sent


async def test_label_spares_a_pod_of_the_same_name_and_one_that_is_gone(world):
    wanted = engines(world, 1)
    await settled(world, wanted)
    uid = (await world.pods(1))["p-a-0"]
    before = world.cluster.get("Pod", "p-a-0")["metadata"]["labels"]
    stale = "00000000-0000-0000-0000-000000000000"
    report = await world.carry_out(
        wanted, labels=(labelled(world, stale, "true"), labelled(world, uid, "true", name="p-a-7"))
    )
    assert (report.failures, report.transient) == ((), [])
    assert world.cluster.get("Pod", "p-a-0")["metadata"]["labels"] == before
    assert world.cluster.get("Pod", "p-a-7") is None


async def test_label_is_not_set_without_leadership(world):
    await settled(world, engines(world, 1))
    uid = (await world.pods(1))["p-a-0"]
    before = world.cluster.get("Pod", "p-a-0")["metadata"]["labels"]
    world.executor = Executor(world.kube, world.store, may_write=lambda: False)
    with pytest.raises(NotLeading):
        await world.carry_out(labels=(labelled(world, uid, "true"),))
    assert world.cluster.get("Pod", "p-a-0")["metadata"]["labels"] == before


# -- scaling without an apply --------------------------------------------------------------------------------------


async def test_stateful_set_that_a_plan_only_scales_is_scaled_once(world):
    await settled(world, engines(world, 1))
    scale = Scale(key=key(live(world)), replicas=3, why="a test")
    for _ in range(2):
        await world.executor.carry_out(world.name, Plan(scales=(scale,)), world.memory)
        await world.look()
    assert live(world)["spec"]["replicas"] == 3
    assert owners_of_replicas(live(world)) == {SCALE}
    sent = sum(world.kube.requests.values())
    await world.executor.carry_out(world.name, Plan(scales=(scale,)), world.memory)
    assert world.kube.requests["apply", "StatefulSet"] > 0
    assert sum(world.kube.requests.values()) == sent


# -- leadership and credentials ------------------------------------------------------------------------------------


@pytest.mark.field_report("K07")
async def test_no_write_is_sent_without_leadership(world):
    world.executor = Executor(world.kube, world.store, may_write=lambda: False)
    with pytest.raises(NotLeading):
        await world.carry_out(engines(world, 1))
    assert live(world) is None


@pytest.mark.field_report("K07")
async def test_losing_leadership_stops_a_plan_midway(world):
    answers = iter([True, False])
    world.executor = Executor(world.kube, world.store, may_write=lambda: next(answers, False))
    with pytest.raises(NotLeading):
        await world.carry_out(apply(world.service("p-1")), apply(world.service("p-2")))
    assert [item["metadata"]["name"] for item in world.cluster.list("Service")] == ["p-1"]


@pytest.mark.field_report("K13")
async def test_rejected_token_is_reread_and_the_request_repeated(crd_cluster, apiserver, tmp_path):
    import base64

    import yaml

    config = yaml.safe_load(crd_cluster.kubeconfig.read_text())
    authority = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"])
    (tmp_path / "ca.crt").write_bytes(authority)
    (tmp_path / "token").write_text("expired")
    host, port = crd_cluster.server.removeprefix("https://").rsplit(":", 1)
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    client, relogin = await connect(environ=environ, service_account_dir=tmp_path)
    kube = Kube(client, relogin, kinds=TEST_KINDS)
    (tmp_path / "token").write_text(config["users"][0]["user"]["token"])
    key = ObjectKey("v1", "ConfigMap", "kube-system", "kube-root-ca.crt")
    assert (await kube.get(key))["metadata"]["name"] == "kube-root-ca.crt"
    assert kube.requests["get", "ConfigMap"] == 2
    await kube.close()


async def test_a_namespace_that_is_not_there_is_not_found(world):
    stray = world.service()
    stray["metadata"] |= {"namespace": "nowhere", "ownerReferences": []}
    with pytest.raises(NotFound):
        await world.kube.apply(stray, manager="test")


async def test_server_errors_are_translated(world):
    bad = world.service()
    bad["metadata"]["name"] = "No_Name"
    with pytest.raises(Permanent, match=r"metadata\.name"):
        await world.kube.apply(bad, manager="test")


@pytest.mark.field_report("K14")
async def test_unanswered_request_times_out(world):
    from reasoningpool.adapters.errors import Unreachable

    accepted = []

    async def never_answer(_reader, writer):
        accepted.append(writer)

    started = time.monotonic()
    silent = await asyncio.start_server(never_answer, "127.0.0.1", 0)
    world.kube._api.configuration.host = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    kube = Kube(world.kube._api, timeout=0.3)
    with pytest.raises(Unreachable, match="no answer within"):
        await kube.get(ObjectKey("v1", "Service", "default", "kubernetes"))
    assert time.monotonic() - started < 5
    for writer in accepted:
        writer.close()
        await writer.wait_closed()
    silent.close()
    await silent.wait_closed()
