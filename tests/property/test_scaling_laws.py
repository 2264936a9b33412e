"""Laws of scaling decisions."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from reasoningpool.scaling import (
    Bounds,
    Direction,
    History,
    PodSample,
    ScalingPolicy,
    TierCapacity,
    TierState,
    decide,
)

CAPACITY = TierCapacity(usable_kv_tokens=50_000, mean_resident_tokens=4_000.0, max_num_seqs=14, preemption_risk=0.01)

counts = st.integers(0, 60)
samples = st.lists(
    st.builds(
        PodSample,
        pod=st.sampled_from([f"p-{i}" for i in range(8)]),
        age_seconds=st.floats(-10, 120),
        kv_usage=st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 1),
        running=counts,
        waiting=counts,
        preemptions=st.floats(0, 100),
        finished=st.floats(0, 1000),
    ),
    max_size=8,
    unique_by=lambda sample: sample.pod,
)
states = st.builds(
    lambda ready, starting, draining, queued: TierState(
        desired=ready + starting + draining, ready=ready, starting=starting, draining=draining, queued_at_gateway=queued
    ),
    st.integers(0, 8),
    st.integers(0, 4),
    st.integers(0, 2),
    counts,
)
bounds = st.builds(
    lambda low, more, gpus: Bounds(minimum=low, maximum=low + more, most_by_gpus=None if gpus is None else low + gpus),
    st.integers(0, 6),
    st.integers(0, 20),
    st.none() | st.integers(0, 10),
)
histories = st.builds(
    History,
    last_scale_up=st.none() | st.floats(-1000, 0),
    last_scale_down=st.none() | st.floats(-1000, 0),
    last_excess_preemption=st.none() | st.floats(-1000, 0),
    started=st.none() | st.floats(-1000, 0),
)


@given(samples, states, bounds, histories)
def test_decisions_stay_within_bounds_and_explain_themselves(
    found: list[PodSample], state: TierState, limits: Bounds, history: History
) -> None:
    decision = decide(found, state, capacity=CAPACITY, policy=ScalingPolicy(), bounds=limits, history=history, now=0.0)
    most = limits.maximum if limits.most_by_gpus is None else min(limits.maximum, limits.most_by_gpus)
    assert limits.minimum <= decision.replicas <= max(most, limits.minimum)
    assert (decision.direction is Direction.NONE) == (decision.replicas == state.desired)
    assert decision.steps
    assert decision.steps[-1].replicas == decision.replicas


@given(samples, states, bounds, histories, st.tuples(st.integers(0, 7), st.integers(1, 40)))
def test_more_load_never_gives_fewer_replicas(
    found: list[PodSample], state: TierState, limits: Bounds, history: History, added: tuple[int, int]
) -> None:
    which, more = added
    if not found:
        return
    index = which % len(found)
    loaded = [
        replace(sample, waiting=sample.waiting + more, running=sample.running + more) if i == index else sample
        for i, sample in enumerate(found)
    ]
    before, after = (
        decide(s, state, capacity=CAPACITY, policy=ScalingPolicy(), bounds=limits, history=history, now=0.0).replicas
        for s in (found, loaded)
    )
    assert after >= before


def test_a_constant_load_never_moves_the_number_twice() -> None:
    """10,000 steps: 400 random loads, each held until the number has settled and beyond."""
    rng = random.Random(1)
    for _ in range(400):
        tokens = rng.uniform(0, 20) * CAPACITY.usable_kv_tokens
        replicas, history, now = rng.randint(1, 20), History(started=-1e6), 0.0
        directions: list[Direction] = []
        for _ in range(25):
            usage = min(1.0, tokens / (replicas * CAPACITY.usable_kv_tokens))
            waiting = max(0, round((tokens - replicas * CAPACITY.usable_kv_tokens) / CAPACITY.mean_resident_tokens))
            found = [
                PodSample(
                    pod=f"p-{i}",
                    age_seconds=1.0,
                    kv_usage=usage,
                    running=round(usage * CAPACITY.usable_kv_tokens / CAPACITY.mean_resident_tokens),
                    waiting=waiting if i == 0 else 0,
                    preemptions=0.0,
                    finished=100.0,
                )
                for i in range(replicas)
            ]
            state = TierState(desired=replicas, ready=replicas, starting=0)
            decision = decide(
                found,
                state,
                capacity=CAPACITY,
                policy=ScalingPolicy(),
                bounds=Bounds(minimum=1, maximum=60),
                history=history,
                now=now,
            )
            history, replicas, now = decision.history, decision.replicas, now + 100.0
            if decision.direction is not Direction.NONE:
                directions.append(decision.direction)
        assert len(set(directions)) <= 1, (tokens, directions)
