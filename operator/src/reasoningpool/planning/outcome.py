"""What became of each tier: sized or not, rendered or not, and what is live of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from reasoningpool.api import names
from reasoningpool.api.conditions import Reason
from reasoningpool.api.resource import ReasoningPool
from reasoningpool.planning.diagnosis import Diagnosis, diagnose
from reasoningpool.planning.features import tier_feature_warnings
from reasoningpool.planning.live import LivePod, LiveTier, live_tier
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


@dataclass(frozen=True, slots=True)
class TierState:
    """The tier in one reason and message, and the pods whose logs would tell more."""

    reason: Reason
    message: str
    silent_pods: tuple[LivePod, ...] = ()


def tier_state(outcome: TierOutcome, snapshot: Snapshot) -> TierState:
    """Why a tier is not ready, judged by its live pods; AllReplicasReady when it is."""
    name = outcome.tier.name
    if isinstance(outcome.sizing, DoesNotFit):
        return TierState(Reason.DOES_NOT_FIT, f"tier {name}: {fit_message(outcome.sizing)}")
    keys = {(m["kind"], m["metadata"]["name"]) for m in outcome.manifests}
    for failure in snapshot.failures:
        if (failure.key.kind, failure.key.name) in keys:
            return TierState(
                Reason.APPLY_FAILED, f"tier {name}: {failure.key.kind} {failure.key.name}: {failure.message}"
            )
    live, desired = outcome.live, outcome.desired_replicas
    if live.stateful_set is None:
        return TierState(Reason.CREATING, f"tier {name}: its StatefulSet is being created")
    found = _diagnoses(live, snapshot)
    silent = tuple(pod for pod, diagnosis in found if not diagnosis.words)
    if found:
        # The pod that fails in the most telling way speaks for the tier.
        telling = min(found, key=lambda entry: (not entry[1].words, entry[0].name))[1]
        more = f" ({len(found)} of {desired} replicas)" if len(found) > 1 else ""
        return TierState(telling.reason, f"tier {name}: {telling.message}{more}", silent)
    return _progress(outcome, live, desired)


def _progress(outcome: TierOutcome, live: LiveTier, desired: int) -> TierState:
    name, current = outcome.tier.name, live.current_pods
    ready = sum(pod.ready for pod in current)
    if desired == 0 and not live.pods:
        return TierState(Reason.SCALED_TO_ZERO, f"tier {name}: 0 replicas wanted")
    outdated = [pod for pod in live.pods if pod not in current]
    if outcome.change is not None or not live.observed or outdated:
        return TierState(
            Reason.ROLLOUT_IN_PROGRESS,
            f"tier {name}: {len(current)} of {desired} replicas run the new revision, {ready} of them ready",
        )
    if not live.pods and outcome.change is None:
        assert live.stateful_set is not None  # said before this
        found = f"statefulset {live.stateful_set['metadata']['name']}"
        return TierState(
            Reason.CREATING,
            f"tier {name}: none of {desired} pods has been created yet; if this lasts, kubectl describe {found}"
            " tells what refuses them (a quota, a LimitRange, a missing PriorityClass)",
        )
    if ready < desired:
        budget = outcome.sizing.startup_budget_seconds if isinstance(outcome.sizing, SizingPlan) else 0
        return TierState(
            Reason.STARTING,
            f"tier {name}: {ready} of {desired} replicas ready; a replica may take up to {budget} s to load the model",
        )
    if len(current) > desired:
        return TierState(
            Reason.ROLLOUT_IN_PROGRESS, f"tier {name}: {len(current) - desired} replicas more than wanted are draining"
        )
    return TierState(Reason.ALL_READY, f"tier {name}: {ready} of {desired} replicas ready")


def _diagnoses(live: LiveTier, snapshot: Snapshot) -> list[tuple[LivePod, Diagnosis]]:
    found = [(pod, diagnose(pod, snapshot.logs.get(pod.uid))) for pod in live.pods]
    return [(pod, diagnosis) for pod, diagnosis in found if diagnosis is not None]


def fit_message(answer: DoesNotFit) -> str:
    """A "does not fit" in one line: needed, available, missing, and what would fit."""
    numbers = (
        f"needed {human_bytes(answer.needed_bytes)}, available {human_bytes(answer.available_bytes)},"
        f" missing {human_bytes(answer.missing_bytes)} per device"
    )
    return f"{answer.what}: {numbers}" + (f"; {'; or '.join(answer.suggestions)}" if answer.suggestions else "")
