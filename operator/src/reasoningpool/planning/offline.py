"""The same plan without a cluster: what `render` and `explain` show."""

from __future__ import annotations

from dataclasses import dataclass

from reasoningpool.api.findings import Finding, Findings, errors_of, warnings_of
from reasoningpool.api.resource import ReasoningPool
from reasoningpool.objects import Manifest
from reasoningpool.planning.outcome import TierOutcome, fit_message, pool_outcome
from reasoningpool.planning.snapshot import Snapshot
from reasoningpool.resolution.resolve import ResolutionSettings, resolve
from reasoningpool.resolution.types import EffectiveTier
from reasoningpool.sizing import DoesNotFit, SizingInput, SizingPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineTier:
    """A tier's calculation."""

    name: str
    summary: str
    sizing: SizingPlan | DoesNotFit
    warnings: tuple[Finding, ...]
    effective: EffectiveTier

    @property
    def inputs(self) -> SizingInput:
        """What was sized."""
        return self.effective.sizing_input


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflinePool:
    """A pool's manifests and calculations; with `errors` both are incomplete."""

    name: str
    namespace: str
    manifests: tuple[Manifest, ...]
    tiers: tuple[OfflineTier, ...]
    errors: tuple[Finding, ...]
    warnings: tuple[Finding, ...]

    @property
    def misfits(self) -> tuple[str, ...]:
        """One message for each tier that does not fit."""
        return tuple(
            f"{self.name} / {tier.name}: {fit_message(tier.sizing)}"
            for tier in self.tiers
            if isinstance(tier.sizing, DoesNotFit)
        )


def offline_pool(pool: ReasoningPool, settings: ResolutionSettings) -> OfflinePool:
    """Resolve, size and render a pool as a cluster that has nothing of it yet would."""
    effective = resolve(pool, settings)
    findings = Findings()
    empty = Snapshot(pool={"metadata": {"name": pool.name, "namespace": pool.namespace}})
    outcome = pool_outcome(pool, effective, empty, findings)
    found = (*effective.findings, *findings.all())
    manifests = [*outcome.shared.manifests, *(m for tier in outcome.tiers for m in _with_replicas(tier))]
    if outcome.gateway is not None:
        manifests.extend(outcome.gateway.manifests)
    return OfflinePool(
        name=pool.name,
        namespace=pool.namespace,
        manifests=tuple(manifests),
        tiers=tuple(_tier(tier) for tier in outcome.tiers),
        errors=errors_of(found),
        warnings=warnings_of(found),
    )


def _with_replicas(outcome: TierOutcome) -> list[Manifest]:
    """The manifests with the number that the scale field manager applies."""
    replicas = outcome.replicas.to_apply
    if replicas is None:
        return list(outcome.manifests)
    return [
        manifest | {"spec": {"replicas": replicas} | manifest["spec"]}
        if manifest["kind"] == "StatefulSet"
        else manifest
        for manifest in outcome.manifests
    ]


def _tier(outcome: TierOutcome) -> OfflineTier:
    tier = outcome.tier
    devices = f"{tier.accelerator.per_replica} x {tier.accelerator.facts.product}"
    return OfflineTier(
        name=tier.name,
        summary=f"{tier.model.id} on {devices}, {tier.workload}",
        sizing=outcome.sizing,
        warnings=outcome.warnings,
        effective=tier,
    )
