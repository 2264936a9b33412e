"""Who decides how many replicas a tier has, and what is decided."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoningpool.api.resource import parse_pool
from reasoningpool.api.spec_tier import ScalingSpec, TierSpec
from reasoningpool.planning.replicas import decide_replicas
from support.pools import pool, tier
from support.world import World


def spec(**changes: object) -> TierSpec:
    body = pool(tiers=[tier(**changes)])
    body["metadata"] |= {"uid": "u", "generation": 1, "namespace": "default"}
    return parse_pool(body).spec.tiers[0]


def without_replicas() -> TierSpec:
    return spec().model_copy(update={"replicas": None})


@given(number=st.integers(0, 50), live=st.none() | st.integers(0, 50))
def test_fixed_number_is_applied_whatever_is_live(number: int, live: int | None) -> None:
    decision = decide_replicas(spec(replicas=number), live)
    assert (decision.desired, decision.to_apply, decision.why) == (number, number, f"replicas is {number}")


@given(least=st.integers(0, 20), live=st.none() | st.integers(0, 50))
def test_autoscaled_tier_has_its_minimum_until_scaling_exists(least: int, live: int | None) -> None:
    scaled = without_replicas().model_copy(update={"scaling": ScalingSpec(minReplicas=least, maxReplicas=20)})
    decision = decide_replicas(scaled, live)
    assert (decision.desired, decision.to_apply) == (least, least)
    assert decision.why == f"scaling.minReplicas is {least}"


@pytest.mark.parametrize(("live", "desired"), [(None, 1), (0, 0), (7, 7)])
def test_number_that_nobody_stated_is_left_alone(live: int | None, desired: int) -> None:
    decision = decide_replicas(without_replicas(), live)
    assert (decision.desired, decision.to_apply) == (desired, None)
    assert "left to the StatefulSet's scaler" in decision.why


def test_every_action_of_a_plan_says_why() -> None:
    world = World(pool(tiers=[tier(replicas=3)]))
    first = world.step()
    assert {action.why for action in first.actions} == {
        "shared by all tiers: does not exist yet",
        "tier reasoning: does not exist yet",
        "replicas is 3",
    }
    again = world.plan()
    assert again.actions == first.actions, "the reason is not part of what is done"
    assert {apply.why for apply in again.applies} == {
        "shared by all tiers: kept as the spec asks",
        "tier reasoning: kept as the spec asks",
    }
    world.edit(pool(tiers=[tier(replicas=3, maxNumSeqs=3)]))
    (rolled,) = [apply for apply in world.plan().applies if apply.manifest["kind"] == "StatefulSet"]
    assert rolled.why.startswith("tier reasoning: ")
    assert "max-num-seqs" in rolled.why
