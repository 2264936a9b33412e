"""One tier's entry of the status: its sizing, what is in effect, its rollout."""

from __future__ import annotations

from typing import Any, Final

from reasoningpool.api import names
from reasoningpool.api.findings import Finding
from reasoningpool.api.resource import ReasoningPool
from reasoningpool.api.status import EffectiveStatus, RolloutStatus, SizingStatus, TierStatus
from reasoningpool.api.text import printable
from reasoningpool.planning.diagnosis.progress import TierState
from reasoningpool.planning.outcome import TierOutcome
from reasoningpool.planning.previous import PreviousTier
from reasoningpool.resolution.types import EffectiveTier
from reasoningpool.rollout import revision_of
from reasoningpool.sizing import SizingPlan

_MOST_LONG_TEXT: Final = 4000
_MOST_WARNINGS: Final = 32


def tier_status(
    pool: ReasoningPool,
    outcome: TierOutcome,
    state: TierState,
    before: PreviousTier | None,
    warnings: tuple[Finding, ...],
) -> dict[str, Any]:
    """One entry of `status.tiers`."""
    tier, desired = outcome.tier, outcome.replicas.desired
    ready = min(outcome.live.ready_pods, desired)
    doubts = tuple(dict.fromkeys(_long(str(warning)) for warning in (*outcome.warnings, *warnings)))[:_MOST_WARNINGS]
    status = TierStatus(
        name=tier.name,
        ready=f"{ready}/{desired}",
        reason=state.reason,
        message=_long(state.message),
        desired_replicas=desired,
        ready_replicas=ready,
        endpoint=f"http://{names.child_name(pool.name, tier.name)}.{pool.namespace}.svc:{names.ENGINE_PORT}/v1",
        sizing=_sizing(outcome),
        correction=outcome.correction.to_status() if outcome.correction else None,
        effective=_effective(tier, outcome.sizing if isinstance(outcome.sizing, SizingPlan) else None),
        rollout=_rollout(outcome, before),
        warnings=doubts or None,
    )
    return status.model_dump(by_alias=True, exclude_none=True, mode="json")


def _long(text: str) -> str:
    return printable(text)[:_MOST_LONG_TEXT]


def _sizing(outcome: TierOutcome) -> SizingStatus | None:
    if not isinstance(outcome.sizing, SizingPlan):
        return None
    verified = outcome.verdict.verified if outcome.verdict else None
    return sizing_status(outcome.sizing).model_copy(update={"verified": verified})


def sizing_status(plan: SizingPlan) -> SizingStatus:
    """The calculation's numbers under the names of the resource."""
    values = {name: getattr(plan, name) for name in SizingStatus.model_fields if hasattr(plan, name)}
    milliseconds = round(plan.time_per_output_token_ms)
    return SizingStatus.model_validate(values | {"time_per_output_token_milliseconds": milliseconds})


def _effective(tier: EffectiveTier, plan: SizingPlan | None) -> EffectiveStatus:
    engine, model = tier.engine, tier.model
    return EffectiveStatus(
        model=model.id,
        revision=model.revision,
        served_name=model.served_name,
        image=engine.image,
        engine_version=".".join(map(str, engine.version)) if engine.version else None,
        accelerator=tier.accelerator.facts.product,
        gpus_per_replica=0 if tier.accelerator.is_cpu else tier.accelerator.per_replica,
        kv_cache_dtype=plan.kv_cache_dtype if plan else engine.kv_cache_dtype,
        reasoning_parser=model.reasoning_parser,
        tool_call_parser=model.tool_call_parser,
        policy=tier.sizing_input.policy,
        preemption_risk_permille=tier.sizing_input.preemption_risk_permille,
    )


def _rollout(outcome: TierOutcome, before: PreviousTier | None) -> RolloutStatus | None:
    rendered = outcome.stateful_set
    if rendered is None:
        return None
    revision = revision_of(rendered)
    change = outcome.change
    if change is None and before is not None and before.revision == revision:
        change = before.change
    updated = 0 if outcome.change is not None else len(outcome.live.current_pods)
    return RolloutStatus(
        revision=revision,
        change=_long(change) if change else None,
        waiting=_long(outcome.waiting) if outcome.waiting else None,
        updated_replicas=updated,
    )
