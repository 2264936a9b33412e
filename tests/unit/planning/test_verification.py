"""The engines' real KV pools against the plan: what is said, what is corrected, and what never rolls a pod."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from reasoningpool.api.status import ReasoningPoolStatus
from reasoningpool.planning.observations import KVPool, KVPoolProblem, KVPoolReport
from reasoningpool.planning.verification.sizing import TOLERANCE_PERMILLE
from support.engines import NAME, limit_of, read_all, run_until_settled
from support.pools import TINY_CONFIG, changed, chat_tier, pool, tier
from support.world import World, condition

BLOCK = 128
# 1,024 bytes of KV cache per token: 256 blocks of 128 tokens.
CPU_POOL = pool(
    model={"id": "tiny/tiny", "configJSON": TINY_CONFIG, "parsers": {"reasoning": "qwen3"}},
    accelerator={"product": "CPU"},
    engine={"image": "example.org/vllm-cpu:0.32.0", "kvCacheMemory": "32Mi"},
    tiers=[
        tier(
            promptTokens=1024,
            efforts=[
                {"name": "low", "thinkingTokens": 128, "answerTokens": 128},
                {"name": "high", "thinkingTokens": 1024, "answerTokens": 256},
            ],
        )
    ],
)
HALF_THE_LAYERS = changed(
    CPU_POOL, "spec.model.configJSON", TINY_CONFIG.replace('"num_hidden_layers": 4', '"num_hidden_layers": 2')
)


def blocks(number: int, size: int = BLOCK) -> KVPool:
    return KVPool(num_blocks=number, block_size=size)


def true_engine(_limit: int, _pod: str) -> KVPoolReport:
    """The pool of the real model, whatever was planned."""
    return blocks(256)


def entry(world: World) -> dict[str, Any]:
    tiers: list[dict[str, Any]] = world.pool["status"]["tiers"]
    return tiers[0]


def verified(world: World) -> dict[str, Any]:
    return condition(world.pool["status"], "SizingVerified")


def planned_limit(body: dict[str, Any]) -> int:
    world = World(copy.deepcopy(body))
    world.step()
    return limit_of(world)


def test_pool_that_agrees_is_verified_with_both_figures_and_nothing_more_is_written() -> None:
    world = World(copy.deepcopy(CPU_POOL))
    assert len(run_until_settled(world, true_engine)) == 1
    assert (verified(world)["status"], verified(world)["reason"]) == ("True", "Verified")
    assert "holds 32,640 tokens; 32,640 were planned" in verified(world)["message"]
    assert entry(world)["sizing"]["verified"] == {
        "numBlocks": 256, "blockSize": 128, "usableKVTokens": 32_640, "plannedUsableKVTokens": 32_640,
    }  # fmt: skip
    assert "correction" not in entry(world)
    assert condition(world.pool["status"])["status"] == "True"
    assert (world.plan().status, world.plan().requeue_after_seconds) == (None, None)


@pytest.mark.parametrize("policy", ["Statistical", "WorstCase"])
def test_plan_made_wrong_rolls_once_to_what_the_true_model_gives(policy: str) -> None:
    wrong = changed(HALF_THE_LAYERS, "spec.tiers.0.concurrency", {"policy": policy})
    right = changed(CPU_POOL, "spec.tiers.0.concurrency", {"policy": policy})
    world = World(copy.deepcopy(wrong))
    limits = run_until_settled(world, true_engine)
    assert limits == [planned_limit(wrong), planned_limit(right)]
    assert limits[0] > limits[1]
    assert (verified(world)["status"], verified(world)["reason"]) == ("True", "Corrected")
    assert entry(world)["sizing"]["maxNumSeqs"] == limits[1]
    correction = entry(world)["correction"]
    assert (correction["usableKVTokens"], correction["plannedUsableKVTokens"]) == (32_640, 65_408)
    assert (correction["maxNumSeqs"], correction["plannedMaxNumSeqs"]) == (limits[1], limits[0])
    change = entry(world)["rollout"]["change"]
    assert "KV pool holds 32,640 tokens and 65,408 were planned" in change
    assert f"--max-num-seqs {limits[0]} -> {limits[1]}" in change


def test_correction_is_on_record_before_any_pod_rolls_for_it() -> None:
    world = World(copy.deepcopy(HALF_THE_LAYERS))
    world.step()
    world.roll(NAME)
    world.step()
    read_all(world, true_engine)
    template = copy.deepcopy(world.children["StatefulSet", NAME]["spec"]["template"])
    done = world.step()
    assert world.children["StatefulSet", NAME]["spec"]["template"] == template
    assert done.requeue_after_seconds == 0.0
    assert (verified(world)["status"], verified(world)["reason"]) == ("False", "KVPoolSmaller")
    assert condition(world.pool["status"])["reason"] == "KVPoolSmaller"
    assert [event.reason for event in done.events] == ["KVPoolSmaller"]
    done = world.step()
    assert world.children["StatefulSet", NAME]["spec"]["template"] != template
    (event,) = [event for event in done.events if event.reason == "RolloutStarted"]
    assert "KV pool holds 32,640 tokens" in event.message


def test_restart_of_the_operator_after_a_correction_changes_nothing() -> None:
    world = World(copy.deepcopy(HALF_THE_LAYERS))
    run_until_settled(world, true_engine)
    world.kv_pools.clear()
    done = world.plan()
    assert (done.status, done.events) == (None, ())
    assert len(done.wanted) == 1
    assert run_until_settled(world, true_engine) == [limit_of(world)]


def test_change_of_the_budgets_voids_the_correction_and_one_of_labels_does_not() -> None:
    world = World(copy.deepcopy(HALF_THE_LAYERS))
    limit = run_until_settled(world, true_engine)[-1]
    world.edit(changed(world.pool, "spec.tiers.0.podOverrides", {"labels": {"team": "a"}}))
    world.step()
    assert limit_of(world) == limit
    world.roll(NAME)
    world.edit(changed(world.pool, "spec.tiers.0.promptTokens", 1023))
    world.step()
    assert limit_of(world) > limit
    assert "correction" not in entry(world)


def test_true_configuration_after_a_correction_keeps_the_limit() -> None:
    world = World(copy.deepcopy(HALF_THE_LAYERS))
    limit = run_until_settled(world, true_engine)[-1]
    world.edit(CPU_POOL)
    assert run_until_settled(world, true_engine) == [limit]
    assert verified(world)["reason"] == "Verified"
    assert "correction" not in entry(world)


@pytest.mark.parametrize(("shortfall", "rolls"), [(TOLERANCE_PERMILLE, 1), (TOLERANCE_PERMILLE + 5, 2)])
def test_shortfall_within_the_tolerance_restarts_no_pod(shortfall: int, rolls: int) -> None:
    body = changed(CPU_POOL, "spec.engine.kvCacheMemory", "256Mi")
    real = blocks(1 + (2_047 * (1000 - shortfall) + 999) // 1000)
    body["spec"]["tiers"][0]["concurrency"] = {"policy": "WorstCase"}
    world = World(body)
    assert len(run_until_settled(world, lambda *_: real)) == rolls
    assert verified(world)["status"] == "True"


def test_larger_kv_pool_is_verified_and_reported_as_partly_unused() -> None:
    world = World(copy.deepcopy(CPU_POOL))
    assert len(run_until_settled(world, lambda *_: blocks(512))) == 1
    assert verified(world)["status"] == "True"
    assert "32,768 tokens (100 %) are not used" in verified(world)["message"]


def test_smallest_replica_counts() -> None:
    pools = {f"{NAME}-0": blocks(256), f"{NAME}-1": blocks(128), f"{NAME}-2": blocks(200)}
    world = World(changed(CPU_POOL, "spec.tiers.0.replicas", 3))
    limits = run_until_settled(world, lambda _, name: pools[name])
    assert limits[1:] == [planned_limit(changed(CPU_POOL, "spec.engine.kvCacheMemory", "16Mi"))]
    assert entry(world)["correction"]["numBlocks"] == 128


def test_pool_that_shrinks_again_is_corrected_again() -> None:
    """Over-committed beyond the tolerance even after the first correction."""
    world = World(copy.deepcopy(CPU_POOL))
    first = planned_limit(CPU_POOL)
    limits = run_until_settled(world, lambda limit, _: blocks(128 if limit == first else 64))
    assert len(limits) == 3
    assert limits == sorted(limits, reverse=True)


def test_stated_limit_is_kept_and_warned_about() -> None:
    world = World(changed(HALF_THE_LAYERS, "spec.tiers.0.maxNumSeqs", 40))
    assert run_until_settled(world, true_engine) == [40]
    assert verified(world)["status"] == "True"
    assert any("maxNumSeqs 40 exceeds the derived" in warning for warning in entry(world)["warnings"])
    assert "maxNumSeqs" not in entry(world)["correction"]


def test_suspended_pool_is_measured_but_not_corrected_until_it_is_resumed() -> None:
    world = World(copy.deepcopy(HALF_THE_LAYERS))
    world.step()
    world.roll(NAME)
    world.edit(changed(world.pool, "spec.suspend", value=True))
    world.step()
    read_all(world, true_engine)
    done = world.step()
    assert len(done.wanted) == 1
    assert (verified(world)["status"], verified(world)["reason"]) == ("False", "KVPoolSmaller")
    assert "suspended" in verified(world)["message"]
    assert "correction" not in entry(world)
    assert world.plan().status is None
    world.edit(HALF_THE_LAYERS)
    world.kv_pools.clear()
    world.step()
    assert verified(world)["status"] == "Unknown"
    assert "correction" not in entry(world), "nothing is corrected by what the status remembers"
    assert limit_of(world) == planned_limit(HALF_THE_LAYERS)
    assert run_until_settled(world, true_engine)[-1] == planned_limit(CPU_POOL)


def test_kv_pool_too_small_for_one_request_is_reported_and_pods_stay() -> None:
    world = World(copy.deepcopy(CPU_POOL))
    assert len(run_until_settled(world, lambda *_: blocks(5))) == 1
    assert (verified(world)["status"], verified(world)["reason"]) == ("False", "KVPoolTooSmall")
    assert "shorten the budgets" in verified(world)["message"]
    assert condition(world.pool["status"])["reason"] == "KVPoolTooSmall"
    assert "correction" not in entry(world)
    assert world.deleted == []


@pytest.mark.parametrize(
    ("problem", "reason", "words"),
    [
        (KVPoolProblem.TIMEOUT, "MetricsUnreachable", "NetworkPolicy"),
        (KVPoolProblem.UNREACHABLE, "MetricsUnreachable", "outside the pod network"),
        (KVPoolProblem.BAD_ANSWER, "MetricMissing", "not return a vLLM metrics page"),
        (KVPoolProblem.NO_METRIC, "MetricMissing", "--disable-log-stats"),
        (KVPoolProblem.TOO_LARGE, "MetricMissing", "too large"),
    ],
)
def test_engine_that_cannot_be_read_leaves_the_pool_ready_and_says_why(
    problem: KVPoolProblem, reason: str, words: str
) -> None:
    world = World(copy.deepcopy(CPU_POOL))
    run_until_settled(world, lambda *_: problem)
    assert (verified(world)["status"], verified(world)["reason"]) == ("Unknown", reason)
    assert words in verified(world)["message"]
    assert condition(world.pool["status"])["status"] == "True"


@pytest.mark.parametrize(
    ("record", "status", "words"),
    [
        ("3", "True", "the 3 sequences it runs with fit the real pool"),
        ("3000", "Unknown", "the pods run an earlier plan"),
        (None, "Unknown", "the pods run an earlier plan"),  # written before the limit was recorded
        ("three", "Unknown", "the pods run an earlier plan"),
    ],
)
def test_upgrade_that_plans_more_than_there_is_rolls_nothing(record: str | None, status: str, words: str) -> None:
    """The pods run an earlier version's plan: a larger plan than the real pool is no reason to restart them."""
    world = World(copy.deepcopy(CPU_POOL))
    run_until_settled(world, lambda *_: blocks(256))
    stateful_set = world.children["StatefulSet", NAME]
    args = stateful_set["spec"]["template"]["spec"]["containers"][0]["args"]
    old = next(a for a in args if a.startswith("--max-num-seqs="))
    args[args.index(old)] = "--max-num-seqs=3"  # as an earlier version would have derived
    for name in ("max-num-seqs", "applied"):  # the latter is of this version
        del stateful_set["metadata"]["annotations"][f"reasoningpool.io/{name}"]
    stateful_set["metadata"]["annotations"] |= {"reasoningpool.io/template": "earlier"} | (
        {} if record is None else {"reasoningpool.io/max-num-seqs": record}
    )
    template = copy.deepcopy(stateful_set["spec"]["template"])
    template["metadata"]["annotations"]["reasoningpool.io/revision"] = "earlier"
    stateful_set["spec"]["template"] = copy.deepcopy(template)
    world.roll(NAME)
    world.kv_pools.clear()
    world.step()
    read_all(world, lambda *_: blocks(100))
    for _ in range(3):
        world.step()
    assert world.children["StatefulSet", NAME]["spec"]["template"] == template
    assert verified(world)["status"] == status
    assert words in verified(world)["message"]
    assert "correction" not in entry(world)
    recorded = world.children["StatefulSet", NAME]["metadata"]["annotations"].get("reasoningpool.io/max-num-seqs")
    assert recorded == record


def test_upgrade_records_the_limit_of_pods_that_run_the_same_plan() -> None:
    """Nothing rolls for it, and a correction is judged by it from the first plan on."""
    world = World(copy.deepcopy(CPU_POOL))
    run_until_settled(world, lambda *_: blocks(256))
    stateful_set = world.children["StatefulSet", NAME]
    template = copy.deepcopy(stateful_set["spec"]["template"])
    limit = stateful_set["metadata"]["annotations"].pop("reasoningpool.io/max-num-seqs")
    world.step()
    assert world.children["StatefulSet", NAME]["spec"]["template"] == template
    assert world.children["StatefulSet", NAME]["metadata"]["annotations"]["reasoningpool.io/max-num-seqs"] == limit


def test_upgrade_keeps_a_correction_and_its_pods() -> None:
    """Another default, catalog figure or constant is in no digest that a correction hangs on."""
    world = World(copy.deepcopy(HALF_THE_LAYERS))
    run_until_settled(world, true_engine)
    template = copy.deepcopy(world.children["StatefulSet", NAME]["spec"]["template"])
    template["spec"]["containers"][0]["env"] = [{"name": "AN_EARLIER", "value": "default"}]
    world.children["StatefulSet", NAME]["spec"]["template"] = copy.deepcopy(template)
    annotations = world.children["StatefulSet", NAME]["metadata"]["annotations"]
    annotations["reasoningpool.io/template"] = "earlier"
    del annotations["reasoningpool.io/applied"]
    for _ in range(3):
        world.step()
    assert world.children["StatefulSet", NAME]["spec"]["template"] == template
    assert verified(world)["reason"] == "Corrected"


def test_every_tier_speaks_and_the_worst_counts() -> None:
    body = copy.deepcopy(CPU_POOL)
    body["spec"]["tiers"].append(chat_tier(promptTokens=1024))
    world = World(body)
    world.step()
    world.roll(NAME)
    world.roll("p-chat")
    world.step()
    read_all(world, true_engine)
    world.step()
    assert verified(world)["status"] == "Unknown"
    assert verified(world)["message"].startswith("tier chat:")
    read_all(world, true_engine, "p-chat")
    world.step()
    assert verified(world)["status"] == "True"
    assert "tier reasoning: " in verified(world)["message"]
    assert "tier chat: " in verified(world)["message"]


@pytest.mark.parametrize("broken", [{"inputs": 5}, "text", {"inputs": "x", "numBlocks": 0}, [], {"numBlocks": -3}])
def test_nonsense_in_the_status_is_ignored(broken: object) -> None:
    world = World(copy.deepcopy(CPU_POOL))
    run_until_settled(world, true_engine)
    entry(world)["correction"] = broken
    entry(world)["sizing"]["verified"] = broken
    world.kv_pools.clear()
    world.step()
    read_all(world, true_engine)
    world.step()
    assert "correction" not in entry(world)
    assert verified(world)["status"] == "True"


def test_status_with_a_correction_round_trips_through_its_model() -> None:
    world = World(copy.deepcopy(HALF_THE_LAYERS))
    run_until_settled(world, true_engine)
    status = world.pool["status"]
    assert (
        ReasoningPoolStatus.model_validate(status).model_dump(by_alias=True, exclude_none=True, mode="json") == status
    )
