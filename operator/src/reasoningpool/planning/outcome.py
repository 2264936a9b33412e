"""What became of each tier: sized or not, rendered or not, and what is live of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from reasoningpool.api import names
from reasoningpool.api.resource import ReasoningPool
from reasoningpool.planning.features import tier_feature_warnings
from reasoningpool.planning.live import LiveTier, live_tier
from reasoningpool.planning.types import Manifest, Snapshot
from reasoningpool.render import (
    PoolIdentity,
    check_chat_template,
    check_pod_overrides,
    describe_change,
    pod_intent,
    render_tier,
    revision_of,
    settle,
    waiting_change,
)
from reasoningpool.resolution.findings import Findings
from reasoningpool.resolution.types import EffectivePool, EffectiveTier
from reasoningpool.resolution.written import written_path
from reasoningpool.sizing import DoesNotFit, SizingError, SizingPlan
from reasoningpool.sizing import plan as size
from reasoningpool.sizing.units import human_bytes

# The same input gives the same answer, and a pool is planned far more often than its budgets change.
_size = lru_cache(maxsize=4096)(size)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierOutcome:
    """One tier after sizing and rendering. `manifests` is empty where the budgets do not fit."""

    index: int
    tier: EffectiveTier
    sizing: SizingPlan | DoesNotFit
    manifests: tuple[Manifest, ...]
    change: str | None  # what a new pod template changes, None if the template stays
    waiting: str | None  # what a newer operator would change, kept back so as not to restart pods
    live: LiveTier
    warnings: tuple[str, ...]

    @property
    def stateful_set(self) -> Manifest | None:
        """The rendered StatefulSet."""
        found = [m for m in self.manifests if m["kind"] == "StatefulSet"]
        return found[0] if found else None

    @property
    def desired_replicas(self) -> int:
        """The fixed number, else what the live StatefulSet asks for, else the 1 it is created with."""
        if self.tier.replicas is not None:
            return self.tier.replicas
        return 1 if self.live.stateful_set is None else self.live.wanted


def tier_outcomes(
    pool: ReasoningPool, effective: EffectivePool, snapshot: Snapshot, findings: Findings
) -> tuple[TierOutcome, ...]:
    """Size and render every tier; input the calculation refuses becomes a finding."""
    identity = PoolIdentity(name=pool.name, namespace=pool.namespace, uid=pool.uid)
    specs = {tier.name: (index, tier) for index, tier in enumerate(pool.spec.tiers)}
    outcomes: list[TierOutcome] = []
    for tier in effective.tiers:
        index, spec = specs[tier.name]
        _check_rendering(tier, pool, index, findings)
        try:
            sizing = _size(tier.sizing_input)
        except SizingError as error:
            findings.error(written_path(pool.spec, index, error.field), str(error))
            continue
        live = live_tier(snapshot.children, snapshot.pods, names.child_name(pool.name, tier.name), tier.name)
        doubts = (*sizing.warnings, *tier_feature_warnings(spec, index))
        if isinstance(sizing, DoesNotFit):
            outcomes.append(
                TierOutcome(
                    index=index,
                    tier=tier,
                    sizing=sizing,
                    manifests=(),
                    change=None,
                    waiting=None,
                    live=live,
                    warnings=doubts,
                )
            )
            continue
        rendered = render_tier(identity, tier, sizing, intent=pod_intent(pool.spec, spec))
        manifests, change, waiting = _settled(rendered.manifests, live)
        outcomes.append(
            TierOutcome(
                index=index,
                tier=tier,
                sizing=sizing,
                manifests=manifests,
                change=change,
                waiting=waiting,
                live=live,
                warnings=(*doubts, *rendered.warnings),
            )
        )
    return tuple(outcomes)


def _check_rendering(tier: EffectiveTier, pool: ReasoningPool, index: int, findings: Findings) -> None:
    """What only the renderer knows cannot be rendered."""
    for problem in check_pod_overrides(tier.overrides) if tier.overrides else ():
        findings.error(f"spec.tiers[{index}].podOverrides.{problem.path}", problem.message)
    template = tier.engine.chat_template
    if template is not None and (message := check_chat_template(template)):
        findings.error(written_path(pool.spec, index, "engine.chatTemplate.inline"), message)


def _settled(manifests: tuple[Manifest, ...], live: LiveTier) -> tuple[tuple[Manifest, ...], str | None, str | None]:
    """The manifests with the live pod template where what the pods run is unchanged."""
    settled: list[Manifest] = []
    change = waiting = None
    for manifest in manifests:
        if manifest["kind"] != "StatefulSet" or live.stateful_set is None:
            settled.append(manifest)
            continue
        kept = settle(live.stateful_set, manifest)
        if revision_of(kept) != revision_of(live.stateful_set):
            change = describe_change(live.stateful_set["spec"]["template"], kept["spec"]["template"])
        waiting = waiting_change(kept, manifest)
        settled.append(kept)
    return tuple(settled), change, waiting


def fit_message(answer: DoesNotFit) -> str:
    """A "does not fit" in one line: needed, available, missing, and what would fit."""
    numbers = (
        f"needed {human_bytes(answer.needed_bytes)}, available {human_bytes(answer.available_bytes)},"
        f" missing {human_bytes(answer.missing_bytes)} per device"
    )
    return f"{answer.what}: {numbers}" + (f"; {'; or '.join(answer.suggestions)}" if answer.suggestions else "")
