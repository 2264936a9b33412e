"""Builds the pool's whole status, so that an unchanged world gives an equal object."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from reasoningpool.api import names
from reasoningpool.api.conditions import FAILURE_REASONS, ConditionStatus, ConditionType, Reason
from reasoningpool.api.findings import Finding
from reasoningpool.api.resource import ReasoningPool
from reasoningpool.objects import Manifest
from reasoningpool.planning.diagnosis.progress import TierState
from reasoningpool.planning.live import live_tier
from reasoningpool.planning.outcome import TierOutcome
from reasoningpool.planning.snapshot import Snapshot
from reasoningpool.planning.status import conditions as cond
from reasoningpool.planning.status.conditions import Condition
from reasoningpool.planning.status.features import feature_conditions, pool_feature_warnings
from reasoningpool.planning.status.tier_status import tier_status
from reasoningpool.planning.verification.sizing import sizing_verified
from reasoningpool.sizing import SizingPlan

_MOST_TEXT: Final = 1000


def pool_status(
    pool: ReasoningPool,
    snapshot: Snapshot,
    *,
    outcomes: tuple[TierOutcome, ...],
    states: dict[str, TierState],
    warnings: tuple[Finding, ...],
    now: datetime,
) -> Manifest:
    """The status of a pool that makes sense: its conditions, its tiers, and the printer columns' fields."""
    before = snapshot.pool.get("status") or {}
    tiers_before = {str(entry.get("name")): entry for entry in before.get("tiers") or ()}
    found = (
        _accepted((*warnings, *pool_feature_warnings(pool.spec))),
        _sized(states),
        _workloads_ready(states),
        sizing_verified(outcome.verdict for outcome in outcomes if outcome.verdict),
        *feature_conditions(pool.spec),
    )
    ready = cond.fold(found)
    if pool.spec.suspend:
        ready = cond.unknown(
            ConditionType.READY, Reason.SUSPENDED, f"suspended: nothing is changed or removed; {ready.message}"
        )
    return {
        "observedGeneration": pool.generation,
        "conditions": cond.render((ready, *found), before.get("conditions") or (), generation=pool.generation, now=now),
        "tiers": [
            tier_status(
                pool,
                outcome,
                states[outcome.tier.name],
                tiers_before.get(outcome.tier.name),
                tuple(warning for warning in warnings if warning.tier == outcome.tier.name),
            )
            for outcome in outcomes
        ],
    } | _summary(outcomes, ready.reason)


def _accepted(warnings: tuple[Finding, ...]) -> Condition:
    message = "the spec is valid" + (f"; but: {'; '.join(map(str, warnings))}" if warnings else "")
    return cond.true(ConditionType.ACCEPTED, Reason.ACCEPTED, message)


def _sized(states: dict[str, TierState]) -> Condition:
    missing = [state.message for state in states.values() if state.reason is Reason.DOES_NOT_FIT]
    if missing:
        return cond.false(ConditionType.SIZED, Reason.DOES_NOT_FIT, "; ".join(missing))
    return cond.true(ConditionType.SIZED, Reason.SIZED, "every tier's budgets fit its accelerators")


def _workloads_ready(states: dict[str, TierState]) -> Condition:
    good = {Reason.ALL_READY, Reason.SCALED_TO_ZERO}
    bad = [state for state in states.values() if state.reason not in good]
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
    """The last status with these conditions in place of the old ones and live replica counts."""
    before: dict[str, Any] = dict(snapshot.pool.get("status") or {})
    metadata = snapshot.pool["metadata"]
    generation = int(metadata.get("generation", 0))
    types, reasons = set(ConditionType) - {condition.type for condition in replaced}, set(Reason)
    kept = tuple(
        Condition(
            ConditionType(entry["type"]), ConditionStatus(entry["status"]), Reason(entry["reason"]), entry["message"]
        )
        for entry in before.get("conditions") or ()
        if entry["type"] in types and entry["reason"] in reasons
    )
    tiers = [_recounted(entry, snapshot, str(metadata["name"])) for entry in before.get("tiers") or ()]
    ready = sum(int(entry.get("readyReplicas", 0)) for entry in tiers)
    desired = sum(int(entry.get("desiredReplicas", 0)) for entry in tiers)
    return (
        before
        | {
            "observedGeneration": generation,
            "reason": str(replaced[0].reason),
            "conditions": cond.render(
                (*replaced, *kept), before.get("conditions") or (), generation=generation, now=now
            ),
        }
        | ({"tiers": tiers, "ready": f"{ready}/{desired}"} if tiers else {})
    )


def _recounted(entry: dict[str, Any], snapshot: Snapshot, pool: str) -> dict[str, Any]:
    name, desired = str(entry["name"]), int(entry.get("desiredReplicas", 0))
    live = live_tier(snapshot.children, snapshot.pods, names.child_name(pool, name), name)
    ready = min(live.ready_pods, desired)
    return entry | {"readyReplicas": ready, "ready": f"{ready}/{desired}"}
