"""What became of the pool and of each tier: sized or not, rendered or not, and what is live of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from reasoningpool.api.findings import Finding, Findings, warning
from reasoningpool.api.resource import ReasoningPool
from reasoningpool.api.spec_tier import TierSpec
from reasoningpool.objects import KINDS, Manifest, ObjectKey
from reasoningpool.planning.gateway import GatewayOutcome, gateway_outcome
from reasoningpool.planning.live import LiveTier, live_tier
from reasoningpool.planning.observations import KVPoolRequest
from reasoningpool.planning.previous import PreviousStatus, PreviousTier
from reasoningpool.planning.replicas import ReplicaDecision, decide_replicas
from reasoningpool.planning.snapshot import ApplyFailure, Snapshot
from reasoningpool.planning.unused_fields import unused_tier_fields
from reasoningpool.planning.verification.correction import Correction, cause_of_change, recorded, sized
from reasoningpool.planning.verification.sizing import TierSizing, Verdict, verify
from reasoningpool.render import PoolIdentity, check_chat_template, check_pod_overrides, render_pool, render_tier
from reasoningpool.resolution.types import EffectivePool, EffectiveTier
from reasoningpool.resolution.written import WrittenTier
from reasoningpool.rollout import (
    applied_template,
    describe_change,
    pod_intent,
    revision_of,
    running_max_num_seqs,
    settle,
    sizing_key,
    waiting_change,
)
from reasoningpool.sizing import DoesNotFit, FitUnit, SizingError, SizingPlan
from reasoningpool.sizing.units import fit_figure


@dataclass(frozen=True, slots=True, kw_only=True)
class TierOutcome:
    """One tier after sizing and rendering. `manifests` is empty where the budgets do not fit."""

    tier: EffectiveTier
    sizing: SizingPlan | DoesNotFit
    manifests: tuple[Manifest, ...]
    change: str | None  # what a new pod template changes, None if the template stays
    waiting: str | None  # what a newer operator would change, kept back so as not to restart pods
    live: LiveTier
    replicas: ReplicaDecision
    warnings: tuple[Finding, ...]  # of the calculation and of rendering; what the spec says is not in it
    verdict: Verdict | None = None  # of a plan: what the engines' KV pools say of it
    correction: Correction | None = None  # in force, or to be from the next cycle on

    @property
    def stateful_set(self) -> Manifest | None:
        """The rendered StatefulSet."""
        return _stateful_set(self.manifests)


def _stateful_set(manifests: tuple[Manifest, ...]) -> Manifest | None:
    return next((manifest for manifest in manifests if manifest["kind"] == "StatefulSet"), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedOutcome:
    """The objects that belong to the pool and to none of its tiers.

    `failures` are the refusals of those that tiers can be without; what all tiers need is told by each of them.
    """

    manifests: tuple[Manifest, ...]
    failures: tuple[ApplyFailure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOutcome:
    """A pool after sizing and rendering."""

    tiers: tuple[TierOutcome, ...]
    shared: SharedOutcome
    gateway: GatewayOutcome | None  # None where the operator runs none


def pool_outcome(pool: ReasoningPool, effective: EffectivePool, snapshot: Snapshot, findings: Findings) -> PoolOutcome:
    """Size and render the tiers, and render what they share; input the calculation refuses becomes a finding."""
    identity = PoolIdentity(name=pool.name, namespace=pool.namespace, uid=pool.uid)
    manifests = render_pool(identity)
    objects = {ObjectKey.of(manifest) for manifest in manifests}
    failures = tuple(f for f in snapshot.failures if f.key in objects and not KINDS.of(f.key).shared)
    tiers = () if effective.errors else _tier_outcomes(pool, effective, snapshot, findings)
    gateway = None
    if effective.gateway is not None and tiers:
        destinations = [(t.tier, t.sizing if isinstance(t.sizing, SizingPlan) else None) for t in tiers]
        gateway = gateway_outcome(identity, effective.gateway, destinations, snapshot)
    return PoolOutcome(tiers=tiers, shared=SharedOutcome(manifests=manifests, failures=failures), gateway=gateway)


def _tier_outcomes(
    pool: ReasoningPool, effective: EffectivePool, snapshot: Snapshot, findings: Findings
) -> tuple[TierOutcome, ...]:
    written = {tier.name: WrittenTier(pool.spec, index) for index, tier in enumerate(pool.spec.tiers)}
    previous = PreviousStatus.of(snapshot.pool)
    outcomes: list[TierOutcome] = []
    for tier in effective.tiers:
        place = written[tier.name]
        spec, before = place.tier, previous.tiers.get(tier.name)
        _check_rendering(tier, place, findings.of(tier.name))
        correction = recorded(before, sizing_key(pool.spec, spec))
        try:
            sizing = sized(tier.sizing_input, correction)
        except SizingError as error:
            findings.of(tier.name).error(place.sizing(error.attribute, error.effort), str(error))
            continue
        live = live_tier(snapshot, tier.name)
        outcome = TierOutcome(
            tier=tier,
            sizing=sizing,
            manifests=(),
            change=None,
            waiting=None,
            live=live,
            replicas=decide_replicas(spec, live.spec_replicas if live.stateful_set else None),
            warnings=(*_of_calculation(sizing, place), *unused_tier_fields(spec, place.path)),
            correction=correction,
        )
        if isinstance(sizing, SizingPlan):
            outcome = _rendered(pool, spec, outcome, sizing, before=before, snapshot=snapshot)
        outcomes.append(outcome)
    return tuple(outcomes)


def _rendered(
    pool: ReasoningPool,
    spec: TierSpec,
    outcome: TierOutcome,
    sizing: SizingPlan,
    *,
    before: PreviousTier | None,
    snapshot: Snapshot,
) -> TierOutcome:
    """The outcome with the manifests of its plan, and what the engines say of that."""
    identity = PoolIdentity(name=pool.name, namespace=pool.namespace, uid=pool.uid)
    tier, live, correction = outcome.tier, outcome.live, outcome.correction
    intent = pod_intent(pool.spec, spec, *(correction.intents if correction else ()))
    rendered = render_tier(identity, tier, sizing, intent=intent)
    manifests, change, waiting = _settled(rendered.manifests, live)
    verdict = verify(
        TierSizing(
            name=tier.name,
            inputs=tier.sizing_input,
            plan=sizing,
            key=sizing_key(pool.spec, spec),
            correction=correction,
            live=live,
            running_max_num_seqs=running_max_num_seqs(_stateful_set(manifests)),
            rolling=change is not None,
            suspended=bool(pool.spec.suspend),
            before=before.verified if before else None,
        ),
        snapshot.observations.of(KVPoolRequest),
    )
    return replace(
        outcome,
        manifests=manifests,
        change=change and cause_of_change(correction, live) + change,
        waiting=waiting,
        warnings=(*outcome.warnings, *rendered.warnings),
        verdict=verdict,
        correction=verdict.correction or correction,
    )


def _of_calculation(sizing: SizingPlan | DoesNotFit, place: WrittenTier) -> Iterator[Finding]:
    """The calculation's warnings; it knows its inputs, but not where they were written."""
    for doubt in sizing.warnings:
        yield warning(place.sizing(doubt.attribute), doubt.message, tier=place.tier.name, standalone=True)


def _check_rendering(tier: EffectiveTier, place: WrittenTier, findings: Findings) -> None:
    """What only the renderer knows cannot be rendered."""
    for finding in check_pod_overrides(tier.overrides) if tier.overrides else ():
        findings.add(finding.under(f"{tier.path}.podOverrides"))
    template = tier.engine.chat_template
    if template is not None and (message := check_chat_template(template)):
        findings.error(f"{place.engine('chat_template')}.inline", message)


def _settled(manifests: tuple[Manifest, ...], live: LiveTier) -> tuple[tuple[Manifest, ...], str | None, str | None]:
    """The manifests with the pod template applied last where what the pods run is unchanged."""
    settled: list[Manifest] = []
    change = waiting = None
    for manifest in manifests:
        if manifest["kind"] != "StatefulSet":
            settled.append(manifest)
            continue
        kept = settle(live.stateful_set, manifest)
        if live.stateful_set is not None:
            if revision_of(kept) != revision_of(live.stateful_set):
                change = describe_change(applied_template(live.stateful_set, kept), kept["spec"]["template"])
            waiting = waiting_change(kept, manifest)
        settled.append(kept)
    return tuple(settled), change, waiting


def fit_message(answer: DoesNotFit) -> str:
    """A "does not fit" in one line: needed, available, missing, and what would fit. Tokens are of no device."""
    needed, available, missing = (
        fit_figure(value, answer.unit) for value in (answer.needed, answer.available, answer.missing)
    )
    where = " per device" if answer.unit is FitUnit.BYTES else ""
    numbers = f"needed {needed}, available {available}, missing {missing}{where}"
    return f"{answer.what}: {numbers}" + (f"; {'; or '.join(answer.suggestions)}" if answer.suggestions else "")
