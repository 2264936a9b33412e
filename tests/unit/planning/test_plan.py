"""Planning over a snapshot: what is applied, removed and said."""

from __future__ import annotations

import pytest

from reasoningpool.api.status import ReasoningPoolStatus
from reasoningpool.objects import ObjectKey
from reasoningpool.planning.observations import KVPoolRequest
from reasoningpool.planning.plan import plan_failure
from reasoningpool.planning.snapshot import ApplyFailure
from support.pools import changed, chat_tier, full, pool, tier
from support.world import NOW, World, condition

CHANGED_ARGUMENT = "spec.tiers.0.maxNumSeqs"


def ready_world(body: dict | None = None, *names: str) -> World:
    world = World(body or pool())
    world.step()
    for name in names or ("p-reasoning",):
        world.roll(name)
    world.step()
    return world


def test_first_plan_creates_everything_account_first_then_stateful_sets() -> None:
    done = World(pool(tiers=[tier(replicas=3), chat_tier()])).plan()
    kinds = [apply.manifest["kind"] for apply in done.applies]
    assert kinds[:3] == ["ServiceAccount", "StatefulSet", "StatefulSet"]
    assert sorted(kinds[3:]) == sorted(["Service"] * 4 + ["PodDisruptionBudget"] * 2)
    assert [(scale.key.name, scale.replicas) for scale in done.scales] == [("p-reasoning", 3), ("p-chat", 1)]


def test_plan_of_a_settled_world_changes_nothing() -> None:
    world = ready_world(pool(tiers=[tier(), chat_tier()]), "p-reasoning", "p-chat")
    again = world.plan()
    assert again.status is None
    assert (again.deletes, again.events) == ((), ())
    assert {type(request) for request in again.wanted} == {KVPoolRequest}
    assert again.requeue_after_seconds is None
    assert all(a.manifest == _live(world, a.manifest) for a in again.applies)


def _live(world: World, manifest: dict) -> dict:
    live = world.children[manifest["kind"], manifest["metadata"]["name"]]
    shown = {key: live[key] for key in manifest}
    shown["metadata"] = {key: live["metadata"][key] for key in manifest["metadata"]}
    if manifest["kind"] == "StatefulSet":
        shown["spec"] = {key: live["spec"][key] for key in manifest["spec"]}
    return shown


def test_ready_pool_says_so_in_every_column() -> None:
    status = ready_world().pool["status"]
    assert condition(status)["status"] == "True"
    assert (status["ready"], status["reason"], status["tierNames"], status["gpus"]) == ("1/1", "Ready", "reasoning", 1)
    assert status["model"] == "qwen3-32b-fp8"
    sizing = status["tiers"][0]["sizing"]
    assert status["maxNumSeqs"] == f"reasoning {sizing['maxNumSeqs']}"
    assert sizing["kvBytesPerToken"] == 131_072


@pytest.mark.field_report("K08")
def test_status_has_only_declared_fields() -> None:
    """What is not in the schema would be pruned, and written again in every cycle."""
    world = World(full())
    world.settings = _allowing("engine")
    world.step()
    status = world.pool["status"]
    assert (
        ReasoningPoolStatus.model_validate(status).model_dump(by_alias=True, exclude_none=True, mode="json") == status
    )


def _allowing(account: str):
    from reasoningpool.planning.plan import PlanningSettings
    from reasoningpool.resolution.resolve import ResolutionSettings

    return PlanningSettings(resolution=ResolutionSettings(allowed_service_accounts=frozenset({account})))


def test_transition_time_stays_while_the_status_stays() -> None:
    world = ready_world()
    before = condition(world.pool["status"])["lastTransitionTime"]
    world.edit(pool(tiers=[tier(), chat_tier()]))
    world.step()
    after = condition(world.pool["status"], "Accepted")
    assert after["lastTransitionTime"] == before
    assert after["observedGeneration"] == 2


def test_removed_tier_is_pruned_and_nothing_else() -> None:
    world = ready_world(pool(tiers=[tier(), chat_tier()]), "p-reasoning", "p-chat")
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "mine", "namespace": "default", "uid": "u", "labels": {"reasoningpool.io/pool": "p"}},
    }
    world.children["Service", "mine"] = foreign
    world.edit(pool())
    world.step()
    assert sorted(world.deleted) == ["p-chat", "p-chat", "p-chat", "p-chat-pods"]
    assert ("Service", "mine") in world.children


@pytest.mark.parametrize(
    ("body", "reason", "words"),
    [
        (pool(model={"id": "No/Such"}), "UnknownModel", "spec.model.id"),
        (pool(accelerator={"product": "H100-SXM"}), "UnknownAccelerator", "did you mean H100-SXM-80GB"),
        (changed(pool(), "spec.tiers.0.maxModelLen", 100), "InvalidSpec", "spec.tiers[0].maxModelLen"),
        (
            changed(pool(), "spec.model.configJSON", '{"a"'),
            "InvalidSpec",
            "spec.model.configJSON: is not valid JSON: line 1",
        ),
        (changed(pool(), "spec.model.configJSON", "[1]"), "InvalidSpec", "must be a JSON object"),
        (
            changed(pool(), "spec.model.configJSON", "[" * 20_000),
            "InvalidSpec",
            "spec.model.configJSON: is not a config",
        ),
        (
            changed(pool(), "spec.model.configJSON", "9" * 5_000),
            "InvalidSpec",
            "spec.model.configJSON: is not a config",
        ),
        (changed(pool(), "spec.model.configJSON", '{"hidden_size": NaN}'), "InvalidSpec", "spec.model.configJSON"),
        (changed(pool(), "spec.accelerator.perReplica", 3), "InvalidSpec", "spec.accelerator.perReplica"),
        (changed(pool(), "spec.engine.extraArgs", ["--max-num-seq", "9"]), "InvalidSpec", "spec.engine.extraArgs[0]"),
        (changed(pool(), "spec.accelerator", {"product": "CPU"}), "InvalidSpec", "spec.engine.kvCacheMemory"),
    ],
)
def test_bad_spec_is_rejected_with_its_field_and_leaves_running_pods_alone(body: dict, reason: str, words: str) -> None:
    world = ready_world()
    world.edit(body)
    done = world.step()
    assert done.actions == ()
    accepted = condition(world.pool["status"], "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", reason)
    assert words in accepted["message"]
    assert condition(world.pool["status"])["status"] == "False"
    assert world.pool["status"]["observedGeneration"] == 2
    assert world.plan().status is None, "the same bad spec is not written again"


def test_no_text_of_a_spec_or_of_an_engine_reaches_status_or_events_raw() -> None:
    hostile = "\x1b[2J\x1b]0;title\x07\u202e\nerror: forged"
    world = ready_world()
    world.edit(changed(pool(), "spec.engine.extraArgs", [f"--max-num-seqs.{hostile}=1"]))
    refused = world.step()
    texts = [condition(world.pool["status"], "Accepted")["message"], *(note.message for note in refused.events)]

    world = ready_world()
    key = ObjectKey("apps/v1", "StatefulSet", "default", "p-reasoning")
    world.failures = (ApplyFailure(key=key, message=hostile),)
    failed = world.plan()
    assert failed.status is not None
    texts += [failed.status["tiers"][0]["message"], condition(failed.status)["message"]]
    texts += [note.message for note in failed.events]
    assert len(texts) >= 5
    assert sum("forged" in text for text in texts) >= 3
    assert all(text.isprintable() for text in texts)


def test_rejected_pool_still_counts_its_live_pods() -> None:
    world = ready_world()
    world.edit(pool(model={"id": "No/Such"}))
    world.step()
    assert world.pool["status"]["ready"] == "1/1"
    world.pods.clear()
    world.step()
    assert world.pool["status"]["ready"] == "0/1"


def test_budgets_that_do_not_fit_are_reported_with_figures_and_keep_the_tier() -> None:
    world = ready_world(pool(tiers=[tier(), chat_tier()]), "p-reasoning", "p-chat")
    world.edit(changed(world.pool, "spec.tiers.0.accelerator", {"product": "L4-24GB"}))
    done = world.step()
    assert done.deletes == ()
    assert {a.manifest["metadata"]["name"] for a in done.applies if a.manifest["kind"] == "StatefulSet"} == {"p-chat"}
    sized = condition(world.pool["status"], "Sized")
    assert (sized["status"], sized["reason"]) == ("False", "DoesNotFit")
    assert "needed" in sized["message"]
    assert "missing" in sized["message"]


def test_budgets_beyond_the_native_context_are_reported_in_tokens() -> None:
    world = ready_world(pool(tiers=[tier()]), "p-reasoning")
    world.edit(changed(world.pool, "spec.tiers.0.promptTokens", 1_000_000))
    world.step()
    message = condition(world.pool["status"], "Sized")["message"]
    assert " tokens, missing " in message
    assert "GiB" not in message
    assert "per device" not in message


def test_suspend_changes_and_removes_nothing_but_status() -> None:
    world = ready_world(pool(tiers=[tier(), chat_tier()]), "p-reasoning", "p-chat")
    world.edit(pool(suspend=True, tiers=[tier(maxNumSeqs=3)]))
    done = world.step()
    assert (done.actions, done.events) == ((), ())
    assert condition(world.pool["status"])["reason"] == "Suspended"


def test_tier_without_replicas_leaves_the_number_alone() -> None:
    body = pool(tiers=[tier(replicas=1)])
    del body["spec"]["tiers"][0]["replicas"]
    world = ready_world(body)
    assert world.plan().scales == ()
    world.children["StatefulSet", "p-reasoning"]["spec"]["replicas"] = 5
    world.step()
    assert world.pool["status"]["ready"] == "1/5"


@pytest.mark.field_report("R12")
def test_replica_changes_do_not_touch_the_pod_template() -> None:
    world = ready_world()
    templates = []
    for replicas in (2, 3, 4, 5):
        world.edit(pool(tiers=[tier(replicas=replicas)]))
        world.step()
        templates.append(world.children["StatefulSet", "p-reasoning"]["spec"]["template"])
    assert all(template == templates[0] for template in templates)
    assert world.pool["status"]["tiers"][0]["rollout"].get("change") is None


def test_rollout_is_announced_with_what_changes_and_followed_to_its_end() -> None:
    world = ready_world(pool(tiers=[tier(replicas=2)]))
    world.edit(pool(tiers=[tier(replicas=2, maxNumSeqs=2)]))
    done = world.step()
    (event,) = [event for event in done.events if event.reason == "RolloutStarted"]
    assert "max-num-seqs" in event.message
    entry = world.pool["status"]["tiers"][0]
    assert (entry["reason"], entry["rollout"]["updatedReplicas"]) == ("RolloutInProgress", 0)
    world.roll("p-reasoning", keep=1)
    world.step()
    entry = world.pool["status"]["tiers"][0]
    assert (entry["reason"], entry["rollout"]["updatedReplicas"]) == ("RolloutInProgress", 1)
    assert "max-num-seqs" in entry["rollout"]["change"]
    world.roll("p-reasoning")
    world.step()
    assert world.pool["status"]["tiers"][0]["reason"] == "AllReplicasReady"


@pytest.mark.field_report("R08")
def test_old_pods_do_not_make_a_new_revision_ready() -> None:
    world = ready_world(pool(tiers=[tier(replicas=3)]))
    world.edit(pool(tiers=[tier(replicas=3, maxNumSeqs=2)]))
    world.step()
    live = world.children["StatefulSet", "p-reasoning"]
    live["status"] = {"observedGeneration": live["metadata"]["generation"], "updateRevision": "p-reasoning-new"}
    world.step()
    ready = condition(world.pool["status"])
    assert (ready["status"], ready["reason"]) == ("False", "RolloutInProgress")
    assert ready["observedGeneration"] == world.pool["metadata"]["generation"]


@pytest.mark.field_report("R06")
def test_only_the_stuck_pod_of_an_old_revision_is_deleted() -> None:
    world = ready_world(pool(tiers=[tier(replicas=3)]))
    good = world.pool["spec"]
    world.edit(changed(world.pool, "spec.model.parsers", {"reasoning": "typo"}))
    world.step()
    world.roll("p-reasoning", keep=2, ready=False, state={"waiting": {"reason": "CrashLoopBackOff"}})
    world.step()
    assert world.deleted == []
    world.edit({"spec": good})
    world.step()
    assert world.deleted == [], "not before the StatefulSet controller has seen the new template"
    world.roll("p-reasoning", keep=3)
    world.step()
    assert world.deleted == ["p-reasoning-2"]


def test_permanent_apply_error_is_in_the_status() -> None:
    world = World(pool())
    key = ObjectKey("apps/v1", "StatefulSet", "default", "p-reasoning")
    world.failures = (ApplyFailure(key=key, message="exceeded quota"),)
    world.step()
    ready = condition(world.pool["status"])
    assert ready["reason"] == "ApplyFailed"
    assert "exceeded quota" in ready["message"]


def test_every_refused_object_is_named_and_the_cause_first() -> None:
    world = World(pool())
    account = ObjectKey("v1", "ServiceAccount", "default", "p-engine")
    engines = ObjectKey("apps/v1", "StatefulSet", "default", "p-reasoning")
    service = ObjectKey("v1", "Service", "default", "p-reasoning")
    world.failures = (
        ApplyFailure(key=account, message="exists already"),
        ApplyFailure(key=service, message="x" * 2000),
        ApplyFailure(key=engines, message="waits for ServiceAccount p-engine"),
        ApplyFailure(key=ObjectKey("v1", "Service", "default", "p-other"), message="of another tier"),
    )
    world.step()
    message = condition(world.pool["status"])["message"]
    assert "tier reasoning: ServiceAccount p-engine: exists already; Service p-reasoning: xxx" in message
    assert message.endswith("StatefulSet p-reasoning: waits for ServiceAccount p-engine")
    assert "p-other" not in message
    assert len(message) < 1000


def test_rejected_pool_object_is_reported_once_and_for_no_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object that tiers can be without, as a gateway's will be."""
    front = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "p-front", "namespace": "default"}}
    monkeypatch.setattr("reasoningpool.planning.outcome.render_pool", lambda _: (front,))
    world = World(pool(tiers=[tier("one"), tier("two")]))
    world.failures = (ApplyFailure(key=ObjectKey.of(front), message="exceeded quota"),)
    world.step()
    ready = condition(world.pool["status"])
    assert ready["reason"] == "ApplyFailed"
    assert ready["message"].startswith("Service p-front: exceeded quota; tier one: ")
    assert ready["message"].count("exceeded quota") == 1
    assert not any("exceeded quota" in entry["message"] for entry in world.pool["status"]["tiers"])


def test_internal_error_is_reported_and_changes_nothing_else() -> None:
    world = ready_world()
    done = plan_failure(world.snapshot(), "KeyError", now=NOW)
    assert done.actions == ()
    assert done.status is not None
    assert condition(done.status)["reason"] == "ReconcileError"
    assert "KeyError" in condition(done.status)["message"]
    assert condition(done.status, "Accepted")["status"] == "True"


def test_fields_without_effect_are_named() -> None:
    world = World(full())
    world.settings = _allowing("engine")
    world.step()
    conditions = {entry["type"]: entry for entry in world.pool["status"]["conditions"]}
    assert "has no effect yet" in conditions["GatewayReady"]["message"]
    assert "has no effect yet" in conditions["ScalingActive"]["message"]
    assert "spec.monitoring has no effect yet" in conditions["Accepted"]["message"]
    warnings = world.pool["status"]["tiers"][0]["warnings"]
    assert any("timeToFirstAnswerTokenSeconds has no effect yet" in warning for warning in warnings)
