"""Whatever stands in a pool's status, planning reads it without a fault and writes one that it reads again."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reasoningpool.api.conditions import ConditionStatus, ConditionType, Reason
from reasoningpool.api.status import ReasoningPoolStatus
from reasoningpool.planning.plan import PlanningSettings, plan, plan_failure
from reasoningpool.planning.previous import PreviousStatus
from reasoningpool.planning.snapshot import Snapshot
from support.pools import changed, pool
from support.world import NOW, World

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def _served() -> World:
    world = World(pool())
    world.step()
    return world


SERVED = _served()
STATUS: dict[str, Any] = SERVED.pool["status"]


def paths(node: Any, above: str = "") -> list[str]:
    """The dotted path of everything in a status."""
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    found = [above] if above else []
    for name, entry in entries:
        found += paths(entry, f"{above}.{name}" if above else str(name))
    return found


def damaged(data: st.DataObject) -> Any:
    """A good status with a few places overwritten, or nothing that was one."""
    if data.draw(st.booleans()):
        return data.draw(JUNK)
    body = {"status": STATUS}
    for path in data.draw(st.lists(st.sampled_from(paths(STATUS)), min_size=1, max_size=3)):
        try:
            body = changed(body, f"status.{path}", data.draw(JUNK))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            continue  # an earlier place took this one away
    return body["status"]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_status_keeps_a_pool_from_being_planned(data: st.DataObject) -> None:
    status = damaged(data)
    snapshot = SERVED.snapshot()
    body = {**snapshot.pool, "status": status}
    found = plan(
        Snapshot(pool=body, children=snapshot.children, pods=snapshot.pods), now=NOW, settings=PlanningSettings()
    )
    assert found.applies
    written = status if found.status is None else found.status
    ReasoningPoolStatus.model_validate(written)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_failure_is_reported_whatever_the_status_holds(data: st.DataObject) -> None:
    """Such a status is kept where it can be read, so that the next one differs no more."""
    body = {**SERVED.snapshot().pool, "status": damaged(data)}
    kept = plan_failure(Snapshot(pool=body), "boom", now=NOW).status
    assert kept is not None
    assert kept["conditions"][0]["reason"] == Reason.RECONCILE_ERROR
    again = plan_failure(Snapshot(pool={**body, "status": kept}), "boom", now=NOW).status
    assert again is None


def test_what_the_operator_wrote_is_read_again() -> None:
    found = PreviousStatus.of(SERVED.pool)
    (tier,) = found.tiers.values()
    assert (tier.name, tier.desired_replicas) == ("reasoning", 1)
    assert tier.revision == STATUS["tiers"][0]["rollout"]["revision"]
    accepted = found.conditions[ConditionType.ACCEPTED]
    assert (accepted.status, accepted.reason) == (ConditionStatus.TRUE, Reason.ACCEPTED)
    assert accepted.since == "2026-01-01T00:00:00Z"


def test_a_time_that_is_none_is_not_sent_back() -> None:
    status = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "yesterday"}]}
    assert PreviousStatus.of({"status": status}).conditions[ConditionType.READY].since is None


def test_of_two_entries_for_a_tier_the_first_counts() -> None:
    entries = [{"name": "a", "desiredReplicas": 1}, {"name": "a", "desiredReplicas": 2}, {"name": 3}, "a"]
    (tier,) = PreviousStatus.of({"status": {"tiers": entries}}).tiers.values()
    assert tier.desired_replicas == 1
