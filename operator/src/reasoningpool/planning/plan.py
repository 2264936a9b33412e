"""(Snapshot, now) -> Plan: everything the operator decides about one pool, without touching anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from reasoningpool.api import names
from reasoningpool.api.conditions import FAILURE_REASONS, ConditionStatus, ConditionType, Reason
from reasoningpool.api.findings import Finding, Findings, errors_of, warnings_of
from reasoningpool.api.resource import ReasoningPool, SpecError, parse_pool
from reasoningpool.api.text import printable
from reasoningpool.objects import KINDS, Manifest, ObjectKey, controller_uid
from reasoningpool.planning.actions import Apply, Delete, EventNote, EventType, Plan, Scale
from reasoningpool.planning.diagnosis.progress import TierState, tier_state
from reasoningpool.planning.observations import ContainerLogRequest, Request
from reasoningpool.planning.outcome import PoolOutcome, TierOutcome, pool_outcome
from reasoningpool.planning.pod_deletions import pod_deletions
from reasoningpool.planning.previous import PreviousStatus
from reasoningpool.planning.snapshot import Snapshot
from reasoningpool.planning.status import conditions as cond
from reasoningpool.planning.status.gateway_ready import gateway_ready
from reasoningpool.planning.status.pool_status import kept_status, pool_status
from reasoningpool.planning.verification.kv_pools import kv_pool_requests
from reasoningpool.resolution.resolve import ResolutionSettings, resolve
from reasoningpool.rollout import put_on_record, revision_of

# How soon to look again while something is failing or starting, besides the events that wake the pool.
_REQUEUE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningSettings:
    """What an administrator decides for all pools."""

    resolution: ResolutionSettings = field(default_factory=ResolutionSettings)


def plan(snapshot: Snapshot, *, now: datetime, settings: PlanningSettings) -> Plan:
    """What to do about a pool, given what is there. Never raises for anything a user can write."""
    try:
        pool = parse_pool(snapshot.pool)
    except SpecError as error:
        return _rejected(snapshot, Reason.INVALID_SPEC, str(error), now)
    effective = resolve(pool, settings.resolution)
    findings = Findings()
    outcome = pool_outcome(pool, effective, snapshot, findings)
    outcomes = outcome.tiers
    errors = (*effective.errors, *errors_of(findings.all()))
    if errors:
        message = "; ".join(str(error) for error in errors)
        return _rejected(snapshot, errors[0].reason, message, now)
    suspended = bool(pool.spec.suspend)
    states = {outcome.tier.name: tier_state(outcome, snapshot, now=now, suspended=suspended) for outcome in outcomes}
    warnings = (*effective.warnings, *warnings_of(findings.all()))
    passive = Plan(
        wanted=_wanted(outcomes, states, snapshot),
        status=_changed(
            snapshot, pool_status(pool, snapshot, outcome=outcome, states=states, warnings=warnings, now=now)
        ),
    )
    if suspended:
        return passive
    applies = _applies(snapshot, outcome)
    removals = _removals(pool, snapshot, applies, outcomes)
    deletions = pod_deletions(outcomes, snapshot)
    return replace(
        passive,
        # What cannot be applied is still wanted: where it may not be read, it may be there.
        applies=tuple(apply for apply in applies if snapshot.can_apply(KINDS.of(ObjectKey.of(apply.manifest)))),
        scales=_scales(outcomes),
        deletes=(*removals, *_left_behind(pool, snapshot), *(deletion.pod for deletion in deletions)),
        events=(
            *_events(outcomes, states, removals, now),
            *(deletion.note for deletion in deletions),
            *_warning_events(warnings),
        ),
        requeue_after_seconds=_requeue(outcome, states),
    )


def _requeue(outcome: PoolOutcome, states: dict[str, TierState]) -> float | None:
    if any(tier.verdict is not None and tier.verdict.correction is not None for tier in outcome.tiers):
        return 0.0  # once this status is written, the next plan applies the correction
    gateway = outcome.gateway is None or gateway_ready(outcome.gateway).status is ConditionStatus.TRUE
    tiers = all(state.reason is Reason.ALL_READY for state in states.values())
    settled = gateway and tiers and not outcome.shared.failures
    return None if settled else _REQUEUE_SECONDS


def plan_failure(snapshot: Snapshot, error: str, *, now: datetime) -> Plan:
    """The status after a fault of the operator itself: said in the resource, everything else left alone."""
    message = f"internal error in the operator ({error}); please report it with the operator's log"
    ready = cond.false(ConditionType.READY, Reason.RECONCILE_ERROR, message)
    event = _note(EventType.WARNING, Reason.RECONCILE_ERROR, message, "Reconcile")
    return Plan(status=_changed(snapshot, kept_status(snapshot, (ready,), now)), events=(event,))


def _changed(snapshot: Snapshot, status: Manifest) -> Manifest | None:
    return None if snapshot.pool.get("status") == status else status


def _rejected(snapshot: Snapshot, reason: Reason, message: str, now: datetime) -> Plan:
    """A spec that makes no sense changes nothing: the pods go on as they are, and status says why."""
    accepted = cond.false(ConditionType.ACCEPTED, reason, f"{message}; running pods are left as they are")
    ready = cond.fold((accepted,))
    event = _note(EventType.WARNING, reason, message, "Validate")
    return Plan(status=_changed(snapshot, kept_status(snapshot, (ready, accepted), now)), events=(event,))


def _applies(snapshot: Snapshot, outcome: PoolOutcome) -> tuple[Apply, ...]:
    there = {ObjectKey.of(child) for child in snapshot.children}

    def why(manifest: Manifest, scope: str, change: str | None = None) -> str:
        reason = "does not exist yet" if ObjectKey.of(manifest) not in there else change or "kept as the spec asks"
        return f"{scope}: {reason}"

    applies = [
        Apply(manifest=manifest, why=why(manifest, "shared by all tiers")) for manifest in outcome.shared.manifests
    ]
    previous = PreviousStatus.of(snapshot.pool).tiers
    for tier in outcome.tiers:
        name = tier.tier.name
        for manifest in tier.manifests:
            is_set = manifest["kind"] == "StatefulSet"
            applies.append(
                Apply(
                    manifest=put_on_record(manifest) if is_set else manifest,
                    orphan_on_immutable=is_set,
                    replicas_before=previous[name].desired_replicas if is_set and name in previous else 0,
                    why=why(manifest, f"tier {name}", tier.change if is_set else None),
                )
            )
    if outcome.gateway is not None:
        applies.extend(Apply(manifest=manifest, why=why(manifest, "gateway")) for manifest in outcome.gateway.manifests)
    return tuple(sorted(applies, key=lambda apply: KINDS.rank(ObjectKey.of(apply.manifest))))


def _scales(outcomes: tuple[TierOutcome, ...]) -> tuple[Scale, ...]:
    return tuple(
        Scale(key=ObjectKey.of(outcome.stateful_set), replicas=replicas, why=outcome.replicas.why)
        for outcome in outcomes
        if outcome.stateful_set is not None and (replicas := outcome.replicas.to_apply) is not None
    )


def _removals(
    pool: ReasoningPool, snapshot: Snapshot, applies: tuple[Apply, ...], outcomes: tuple[TierOutcome, ...]
) -> tuple[Delete, ...]:
    """Objects of this pool that nothing asks for any more; those of a tier that does not fit stay."""
    wanted = {ObjectKey.of(apply.manifest) for apply in applies}
    kept = {outcome.tier.name for outcome in outcomes if not outcome.manifests}
    return tuple(
        Delete(key=ObjectKey.of(child), uid=str(child["metadata"]["uid"]), why="the spec no longer asks for it")
        for child in snapshot.children
        if KINDS.of(ObjectKey.of(child)).owned
        and ObjectKey.of(child) not in wanted
        and controller_uid(child) == pool.uid
        and (child["metadata"].get("labels") or {}).get(names.LABEL_TIER) not in kept
        and "deletionTimestamp" not in child["metadata"]
    )


def _left_behind(pool: ReasoningPool, snapshot: Snapshot) -> Iterator[Delete]:
    """Pods that the pool itself owns and no StatefulSet will adopt any more: their tier is gone from the spec."""
    tiers = {tier.name for tier in pool.spec.tiers}
    for pod in snapshot.pods:
        meta = pod["metadata"]
        owners = {str(reference["uid"]) for reference in meta.get("ownerReferences") or ()}
        if (
            owners == {pool.uid}
            and (meta.get("labels") or {}).get(names.LABEL_TIER) not in tiers
            and "deletionTimestamp" not in meta
        ):
            yield Delete(key=ObjectKey.of(pod), uid=str(meta["uid"]), why="its tier is gone, and its StatefulSet too")


def _wanted(
    outcomes: tuple[TierOutcome, ...], states: dict[str, TierState], snapshot: Snapshot
) -> tuple[Request[Any], ...]:
    """What would help the next plan: why pods fail or are missing, and what KV pools engines have."""
    return (
        *_log_requests(states, snapshot),
        *(state.missing_pods for state in states.values() if state.missing_pods),
        *(request for outcome in outcomes for request in kv_pool_requests(outcome.live)),
    )


def _log_requests(states: dict[str, TierState], snapshot: Snapshot) -> tuple[ContainerLogRequest, ...]:
    logs = snapshot.observations.of(ContainerLogRequest)
    requests: list[ContainerLogRequest] = []
    for state in states.values():
        for pod in state.unexplained_pods[:1]:  # one pod's log is enough
            if pod.uid in logs:
                continue
            engine = [c for c in pod.containers if c.get("name") == names.ENGINE_CONTAINER]
            requests.append(
                ContainerLogRequest(
                    namespace=pod.body["metadata"]["namespace"],
                    pod=pod.name,
                    pod_uid=pod.uid,
                    container=names.ENGINE_CONTAINER,
                    previous=any("running" in (c.get("state") or {}) for c in engine),
                )
            )
    return tuple(requests)


def _events(
    outcomes: tuple[TierOutcome, ...], states: dict[str, TierState], removals: tuple[Delete, ...], now: datetime
) -> tuple[EventNote, ...]:
    notes: list[EventNote] = []
    for outcome in outcomes:
        name, rendered = outcome.tier.name, outcome.stateful_set
        if outcome.live.is_new(now):
            text = f"tier {name}: its StatefulSet was created"
            notes.append(_note(EventType.NORMAL, Reason.WORKLOAD_CREATED, text, "Create"))
        if rendered is not None and outcome.change is not None:
            text = f"tier {name}: rolling to revision {revision_of(rendered)}: {outcome.change}"
            notes.append(_note(EventType.NORMAL, Reason.ROLLOUT_STARTED, text, "Update"))
        state, verdict = states[name], outcome.verdict
        if verdict is not None and verdict.status is ConditionStatus.FALSE:
            notes.append(_note(EventType.WARNING, verdict.reason, verdict.message, "Verify"))
        if state.reason in FAILURE_REASONS or state.reason is Reason.DOES_NOT_FIT:
            notes.append(_note(EventType.WARNING, state.reason, state.message, "Reconcile"))
    for removal in removals:
        if removal.key.kind == "StatefulSet":
            text = f"removing {removal.key.name}: running requests are finished first"
            notes.append(_note(EventType.NORMAL, Reason.TIER_REMOVED, text, "Delete"))
    return tuple(notes)


def _warning_events(warnings: tuple[Finding, ...]) -> tuple[EventNote, ...]:
    return tuple(_note(EventType.WARNING, warning.reason, str(warning), "Validate") for warning in warnings)


def _note(kind: EventType, reason: Reason, message: str, action: str) -> EventNote:
    return EventNote(type=kind, reason=str(reason), message=printable(message)[:1000], action=action)
