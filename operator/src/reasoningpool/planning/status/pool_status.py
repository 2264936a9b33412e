"""Builds the pool's whole status, so that an unchanged world gives an equal object."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from reasoningpool.api.conditions import FAILURE_REASONS, ConditionType, Reason
from reasoningpool.api.findings import Finding
from reasoningpool.api.resource import ReasoningPool
from reasoningpool.objects import Manifest
from reasoningpool.planning.diagnosis.apply_failures import refusals
from reasoningpool.planning.diagnosis.progress import TierState
from reasoningpool.planning.live import live_tier
from reasoningpool.planning.outcome import PoolOutcome, TierOutcome
from reasoningpool.planning.previous import PreviousStatus, PreviousTier
from reasoningpool.planning.snapshot import Snapshot
from reasoningpool.planning.status import conditions as cond
from reasoningpool.planning.status.conditions import Condition
from reasoningpool.planning.status.features import feature_conditions
from reasoningpool.planning.status.gateway_ready import gateway_ready
from reasoningpool.planning.status.sizing_verified import sizing_verified
from reasoningpool.planning.status.tier_status import tier_status
from reasoningpool.planning.unused_fields import unused_pool_fields
from reasoningpool.sizing import SizingPlan

_MOST_TEXT: Final = 1000


def pool_status(
    pool: ReasoningPool,
    snapshot: Snapshot,
    *,
    outcome: PoolOutcome,
    states: dict[str, TierState],
    warnings: tuple[Finding, ...],
    now: datetime,
) -> Manifest:
    """The status of a pool that makes sense: its conditions, its tiers, and the printer columns' fields."""
    before, outcomes = PreviousStatus.of(snapshot.pool), outcome.tiers
    found = (
        _accepted((*warnings, *unused_pool_fields(pool.spec))),
        _sized(states),
        _workloads_ready(states, refusals(outcome.shared.failures)),
        sizing_verified(tier.verdict for tier in outcomes if tier.verdict),
        *([gateway_ready(outcome.gateway)] if outcome.gateway else ()),
        *feature_conditions(pool.spec),
    )
    ready = cond.fold(found)
    if pool.spec.suspend:
        ready = cond.unknown(
            ConditionType.READY, Reason.SUSPENDED, f"suspended: nothing is changed or removed; {ready.message}"
        )
    url = {"url": outcome.gateway.url} if outcome.gateway else {}
    return {
        "observedGeneration": pool.generation,
        "conditions": cond.render((ready, *found), before, generation=pool.generation, now=now),
        "tiers": [
            tier_status(
                pool,
                tier,
                states[tier.tier.name],
                before.tiers.get(tier.tier.name),
                tuple(warning for warning in warnings if warning.tier == tier.tier.name),
            )
            for tier in outcomes
        ],
    } | (_summary(outcomes, ready.reason) | url)


def _accepted(warnings: tuple[Finding, ...]) -> Condition:
    message = "the spec is valid" + (f"; but: {'; '.join(map(str, warnings))}" if warnings else "")
    return cond.true(ConditionType.ACCEPTED, Reason.ACCEPTED, message)


def _sized(states: dict[str, TierState]) -> Condition:
    missing = [state.message for state in states.values() if state.reason is Reason.DOES_NOT_FIT]
    if missing:
        return cond.false(ConditionType.SIZED, Reason.DOES_NOT_FIT, "; ".join(missing))
    return cond.true(ConditionType.SIZED, Reason.SIZED, "every tier's budgets fit its accelerators")


def _workloads_ready(states: dict[str, TierState], refused: str) -> Condition:
    good = {Reason.ALL_READY, Reason.SCALED_TO_ZERO}
    bad = [state for state in states.values() if state.reason not in good]
    if refused:
        bad.insert(0, TierState(Reason.APPLY_FAILED, refused))
    if not bad:
        return cond.true(
            ConditionType.WORKLOADS_READY, Reason.ALL_READY, "; ".join(state.message for state in states.values())
        )
    # A failure explains more than progress does.
    first = min(bad, key=lambda state: state.reason not in FAILURE_REASONS)
    return cond.false(ConditionType.WORKLOADS_READY, first.reason, "; ".join(state.message for state in bad))


def _summary(outcomes: tuple[TierOutcome, ...], reason: Reason) -> dict[str, Any]:
    """The flat fields that the printer columns read."""
    desired = sum(outcome.replicas.desired for outcome in outcomes)
    ready = sum(min(outcome.live.ready_pods, outcome.replicas.desired) for outcome in outcomes)
    gpus = sum(
        outcome.replicas.desired * outcome.tier.accelerator.per_replica
        for outcome in outcomes
        if not outcome.tier.accelerator.is_cpu
    )
    sequences = [
        f"{outcome.tier.name} {outcome.sizing.max_num_seqs}"
        for outcome in outcomes
        if isinstance(outcome.sizing, SizingPlan)
    ]
    return {
        "model": ", ".join(dict.fromkeys(outcome.tier.model.served_name for outcome in outcomes))[:_MOST_TEXT],
        "tierNames": ", ".join(outcome.tier.name for outcome in outcomes)[:_MOST_TEXT],
        "ready": f"{ready}/{desired}",
        "reason": str(reason),
        "gpus": gpus,
        "maxNumSeqs": ", ".join(sequences)[:_MOST_TEXT],
    }


def kept_status(snapshot: Snapshot, replaced: tuple[Condition, ...], now: datetime) -> Manifest:
    """The last status with these conditions in place of the old ones and live replica counts.

    What cannot be read of it (see `PreviousStatus`) goes.
    """
    before = PreviousStatus.of(snapshot.pool)
    metadata = snapshot.pool["metadata"]
    generation = int(metadata.get("generation", 0))
    types = {condition.type for condition in replaced}
    kept = tuple(
        Condition(entry.type, entry.status, entry.reason, entry.message)
        for entry in before.conditions.values()
        if entry.type not in types and entry.reason is not None
    )
    counts = {tier.name: _ready(tier, snapshot) for tier in before.tiers.values()}
    tiers = [
        {**tier.body, "readyReplicas": counts[tier.name], "ready": f"{counts[tier.name]}/{tier.desired_replicas}"}
        for tier in before.tiers.values()
    ]
    desired = sum(tier.desired_replicas for tier in before.tiers.values())
    return (
        {name: value for name, value in before.body.items() if name != "tiers"}
        | {
            "observedGeneration": generation,
            "reason": str(replaced[0].reason),
            "conditions": cond.render((*replaced, *kept), before, generation=generation, now=now),
        }
        | ({"tiers": tiers, "ready": f"{sum(counts.values())}/{desired}"} if tiers else {})
    )


def _ready(tier: PreviousTier, snapshot: Snapshot) -> int:
    """How many of the replicas that were wanted serve now."""
    return min(live_tier(snapshot, tier.name).ready_pods, tier.desired_replicas)
