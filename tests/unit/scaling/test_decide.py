"""Decisions on constructed signals."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from reasoningpool.scaling import (
    Bounds,
    Decision,
    Direction,
    History,
    LimitedBy,
    PodSample,
    ScalingPolicy,
    TierCapacity,
    TierState,
    decide,
)

CAPACITY = TierCapacity(usable_kv_tokens=100_000, mean_resident_tokens=5_000.0, max_num_seqs=20, preemption_risk=0.01)
POLICY = ScalingPolicy()
BOUNDS = Bounds(minimum=1, maximum=10)
SETTLED = History(started=-10_000.0)


def pod(name: str = "p-0", **changes: object) -> PodSample:
    values: dict[str, object] = {
        "pod": name,
        "age_seconds": 5.0,
        "kv_usage": 0.0,
        "running": 0,
        "waiting": 0,
        "preemptions": 0.0,
        "finished": 100.0,
    }
    return PodSample(**(values | changes))  # type: ignore[arg-type]


def pods(count: int, **changes: object) -> list[PodSample]:
    return [pod(f"p-{i}", **changes) for i in range(count)]


def state(replicas: int, **changes: int) -> TierState:
    return replace(TierState(desired=replicas, ready=replicas, starting=0), **changes)


def decided(samples: list[PodSample], current: TierState, **changes: object) -> Decision:
    values: dict[str, object] = {
        "capacity": CAPACITY,
        "policy": POLICY,
        "bounds": BOUNDS,
        "history": SETTLED,
        "now": 0.0,
    }
    return decide(samples, current, **(values | changes))  # type: ignore[arg-type]


def test_a_full_pool_with_a_queue_grows() -> None:
    decision = decided(pods(2, kv_usage=0.95, running=19, waiting=4), state(2))
    assert decision.direction is Direction.UP
    assert decision.replicas == math.ceil((2 * 95_000 + 8 * 5_000) / 70_000)


def test_requests_just_admitted_count_with_what_they_will_hold() -> None:
    """Twenty requests that hold their prompts only: the pool looks empty and will not be."""
    assert decided(pods(1, kv_usage=0.05, running=20), state(1)).replicas == 2


def test_tokens_promised_by_the_runtime_count_where_they_are_more() -> None:
    assert decided(pods(1, kv_usage=0.3, running=2, committed_tokens=90_000.0), state(1)).replicas == 2


def test_starting_replicas_are_supply() -> None:
    samples = pods(2, kv_usage=0.95, running=19)
    assert decided(samples, state(3, ready=2, starting=1)).replicas == 3


def test_a_tier_between_both_targets_keeps_its_size() -> None:
    decision = decided(pods(2, kv_usage=0.5, running=10), state(2))
    assert (decision.replicas, decision.direction, decision.limited) == (2, Direction.NONE, ())


def test_an_idle_tier_shrinks_one_replica_at_a_time_and_not_before_its_window() -> None:
    idle = pods(4)
    assert decided(idle, state(4), history=History()).limited == (LimitedBy.STABILIZED,)
    first = decided(idle, state(4))
    assert first.replicas == 3
    again = decided(idle, state(3), history=first.history, now=30.0)
    assert (again.replicas, again.limited) == (3, (LimitedBy.RATE,))
    assert decided(idle, state(3), history=first.history, now=60.0).replicas == 2


def test_a_peak_within_the_window_keeps_the_replicas_it_needed() -> None:
    busy = decided(pods(4, kv_usage=0.6, running=12), state(4))
    later = decided(pods(4), state(4), history=busy.history, now=299.0)
    assert (later.replicas, later.limited) == (4, (LimitedBy.STABILIZED,))
    assert decided(pods(4), state(4), history=later.history, now=301.0).replicas == 3


def test_more_preemptions_than_the_risk_allows_add_a_replica_and_veto_shrinking() -> None:
    preempting = decided(pods(2, preemptions=3.0, finished=100.0), state(2))
    assert (preempting.replicas, preempting.direction) == (3, Direction.UP)
    quiet = decided(pods(3), state(3), history=preempting.history, now=200.0)
    assert (quiet.replicas, quiet.limited) == (3, (LimitedBy.PREEMPTIONS,))


def test_preemptions_within_the_risk_change_nothing() -> None:
    decision = decided(pods(2, kv_usage=0.5, running=10, preemptions=1.0, finished=200.0), state(2))
    assert decision.direction is Direction.NONE


def test_preemptions_while_a_replica_starts_do_not_cascade() -> None:
    decision = decided(pods(2, preemptions=50.0), state(3, ready=2, starting=1))
    assert decision.replicas == 3


@pytest.mark.parametrize(
    "bad",
    [
        {"age_seconds": 300.0},
        {"age_seconds": -5.0},
        {"kv_usage": math.nan},
        {"kv_usage": math.inf},
        {"running": -1},
        {"preemptions": math.nan},
    ],
    ids=str,
)
def test_without_usable_metrics_the_size_is_held(bad: dict[str, object]) -> None:
    decision = decided(pods(3, **bad), state(3))
    assert (decision.replicas, decision.metrics_available) == (3, False)
    assert LimitedBy.METRICS in decision.limited


def test_replicas_without_metrics_are_full_when_shrinking_and_empty_when_growing() -> None:
    shrink = decided(pods(2), state(4))
    assert shrink.replicas == 4
    grow = decided(pods(2, kv_usage=1.0, running=20), state(4))
    assert grow.replicas == 4


def test_a_tier_whose_replicas_are_all_down_keeps_its_size() -> None:
    assert decided([], state(3, ready=0)).replicas == 3


def test_requests_held_by_the_gateway_wake_a_tier_from_zero() -> None:
    bounds = Bounds(minimum=0, maximum=4)
    assert decided([], state(0), bounds=bounds).replicas == 0
    assert decided([], state(0, queued_at_gateway=1), bounds=bounds).replicas == 1


def test_bounds_hold_whatever_the_windows_say() -> None:
    below = decided(pods(1), state(1), bounds=Bounds(minimum=3, maximum=10), history=History())
    assert (below.replicas, below.limited[-1]) == (3, LimitedBy.TOO_FEW_REPLICAS)
    above = decided(pods(9, kv_usage=0.9, running=18), state(9), bounds=Bounds(minimum=1, maximum=5))
    assert (above.replicas, LimitedBy.TOO_MANY_REPLICAS in above.limited) == (5, True)


def test_a_gpu_budget_limits_growth_and_says_so() -> None:
    decision = decided(pods(2, kv_usage=1.0, running=20, waiting=40), state(2), bounds=replace(BOUNDS, most_by_gpus=3))
    assert (decision.replicas, LimitedBy.GPU_BUDGET in decision.limited) == (3, True)


def test_growth_is_limited_to_what_may_start_at_once() -> None:
    decision = decided(pods(2, kv_usage=1.0, running=20, waiting=400), state(2), bounds=Bounds(minimum=1, maximum=100))
    assert (decision.replicas, decision.limited) == (6, (LimitedBy.RATE,))


def test_every_change_says_why() -> None:
    decision = decided(pods(2, kv_usage=0.95, running=19, waiting=4), state(2))
    assert [step.signal for step in decision.steps] == ["demand"]
    assert "requests waiting" in decision.steps[0].value
    assert decision.reason == "4 replicas keep KV usage at 70%"
