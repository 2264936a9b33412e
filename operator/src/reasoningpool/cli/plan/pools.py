"""What `plan` does between its options and its output: the requests of each tier, its rate, its plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click

from reasoningpool.api.conditions import Reason
from reasoningpool.api.findings import Finding
from reasoningpool.api.resource import ReasoningPool
from reasoningpool.api.spec_tier import Objectives as SpecObjectives
from reasoningpool.capacity.mistakes import pool_mistakes, tier_mistakes
from reasoningpool.capacity.plan import TierCapacity, plan_tier
from reasoningpool.cli.plan.source import LengthsError, Request, Source
from reasoningpool.planning.offline import OfflinePool, OfflineTier
from reasoningpool.requests.log import RequestLog
from reasoningpool.requests.tier_requests import MixOptions, TierRequests, tier_requests, tier_share
from reasoningpool.simulation.replicas import Objectives
from reasoningpool.simulation.traffic import LEAST_RECORDED, Traffic
from reasoningpool.sizing import DoesNotFit, SizingError


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTier:
    """A tier with its plan, or with why it does not fit."""

    tier: OfflineTier
    requests: TierRequests
    source: str
    answer: TierCapacity | DoesNotFit
    percentile: int
    warnings: tuple[Finding, ...]
    notes: tuple[str, ...]

    @property
    def kept(self) -> bool:
        """Whether the tier fits and its objectives are kept."""
        return isinstance(self.answer, TierCapacity) and self.answer.kept


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPool:
    """A pool's tiers."""

    name: str
    namespace: str
    tiers: tuple[PlannedTier, ...]
    warnings: tuple[Finding, ...]

    @property
    def kept(self) -> bool:
        """Whether every tier fits and keeps its objectives."""
        return all(tier.kept for tier in self.tiers)


def plan_pools(pools: Sequence[tuple[ReasoningPool, OfflinePool]], request: Request) -> tuple[PlannedPool, ...]:
    """Every tier's plan.

    Raises:
        LengthsError: the lengths cannot be had, or are not this pool's.
        click.UsageError: an option names a tier that is not there, or the rate is missing.
    """
    known = [tier.name for _, pool in pools for tier in pool.tiers]
    for name in (*request.tiers, *(rate for rate in request.rates if rate is not None)):
        if name not in known:
            raise click.UsageError(f"{request.file} has no tier {name!r}; it has {', '.join(known)}")
    source = Source(request)
    return tuple(_planned_pool(spec, pool, request, source) for spec, pool in pools)


def _planned_pool(spec: ReasoningPool, pool: OfflinePool, request: Request, source: Source) -> PlannedPool:
    chosen = [tier for tier in pool.tiers if not request.tiers or tier.name in request.tiers]
    wanted = {tier.name: tier.objectives for tier in spec.spec.tiers}
    alone = len(chosen) == 1
    return PlannedPool(
        name=pool.name,
        namespace=pool.namespace,
        tiers=tuple(_planned_tier(tier, wanted[tier.name], request, source, alone=alone) for tier in chosen),
        warnings=pool_mistakes([tier.effective for tier in pool.tiers]),
    )


def _planned_tier(
    tier: OfflineTier, wanted: SpecObjectives | None, request: Request, source: Source, *, alone: bool
) -> PlannedTier:
    effective, inputs = tier.effective, tier.effective.sizing_input
    with source.failures():
        log = source.log_of(tier)
        requests = tier_requests(
            log,
            tier.name,
            inputs.efforts,
            MixOptions(
                shares=request.shares or None,
                thinking_share=request.thinking_share,
                thinking_enforced=effective.model.thinking_budget_enforceable,
            ),
        )
    rate, rate_notes = _rate(tier, log, requests, request, source)
    if not alone and log.tier is None and source.is_shared:
        rate_notes.append("lengths are not recorded per tier: each tier is planned for all (--tier selects one)")
    try:
        answer = plan_tier(
            inputs,
            requests,
            rate=rate,
            objectives=Objectives(
                first_answer_token_seconds=wanted.time_to_first_answer_token_seconds if wanted else None,
                per_token_seconds=None
                if inputs.time_per_output_token_ms is None
                else inputs.time_per_output_token_ms / 1000,
                percentile=request.percentile,
            ),
            price_per_gpu_hour=request.price,
        )
    except SizingError as error:
        raise LengthsError(f"{request.file}: tier {tier.name}: {error}") from None
    return PlannedTier(
        tier=tier,
        requests=requests,
        source=source.words,
        answer=answer,
        percentile=request.percentile,
        # What the operator does not use yet is used here: the objectives.
        warnings=(
            *(warning for warning in tier.warnings if warning.reason is not Reason.NOT_IMPLEMENTED),
            *tier_mistakes(effective),
        ),
        notes=(*requests.notes, *rate_notes),
    )


def _rate(
    tier: OfflineTier, log: RequestLog, requests: TierRequests, request: Request, source: Source
) -> tuple[float, list[str]]:
    stated = request.rates.get(tier.name)
    if stated is not None:
        return stated, []
    whole = request.rates.get(None)
    if whole is not None:
        share = tier_share(log, tier.name)
        return whole * share, [] if share == 1 else [f"the tier takes its {100 * share:.1f} % of the stated rate"]
    seen = source.peak_rate(tier)
    if seen is not None:
        return seen, [f"the rate is the highest over 5 minutes that Prometheus shows in {request.looks_back}"]
    recorded = Traffic.of(requests).recorded_rate
    if recorded is None:
        raise click.UsageError(f"--rate is needed for tier {tier.name}: {_why_no_rate(requests)}")
    return recorded, ["the rate is the log's busiest stretch"]


def _why_no_rate(requests: TierRequests) -> str:
    seconds = requests.seconds
    if seconds is None:
        return "the lengths come without arrival times"
    if len(seconds) < LEAST_RECORDED:
        return f"{len(seconds):,} arrivals in the log are too few for a rate; at least {LEAST_RECORDED:,}"
    return "all arrivals in the log are at the same time"
