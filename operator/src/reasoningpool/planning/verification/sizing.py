"""The engines' real KV pools against the plan, and what follows from a shortfall (docs/verification.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from reasoningpool.api.conditions import ConditionStatus, Reason
from reasoningpool.api.status import VerifiedStatus
from reasoningpool.planning.live import LivePod, LiveTier
from reasoningpool.planning.observations import KVPool, KVPoolProblem, KVPoolReport
from reasoningpool.planning.verification.correction import Correction, cached_size, with_pool
from reasoningpool.planning.verification.kv_pools import engine_start
from reasoningpool.sizing import DoesNotFit, Limit, SizingInput, SizingPlan

# How much smaller than planned a pool may be before every replica is restarted for it, in permille of the planned
# tokens. A restart costs minutes per replica; 2 % of the pool is one sequence in fifty, and by the calculation's own
# overflow model takes P(resident > usable) from 0.2 to 2.3 % at 48 sequences and by less at fewer. Smaller shortfalls
# also come and go between starts: what else is on the device, and the profiling run, differ a little each time.
TOLERANCE_PERMILLE: Final = 20

_WHY: Final = "a NetworkPolicy may keep the operator out, or the operator runs outside the pod network"
_SWITCH: Final = "--disable-log-stats in engine.extraArgs switches it off"
_PROBLEMS: Final = {
    KVPoolProblem.TIMEOUT: (Reason.METRICS_UNREACHABLE, f"is not responding; {_WHY}"),
    KVPoolProblem.UNREACHABLE: (Reason.METRICS_UNREACHABLE, f"cannot be reached; {_WHY}"),
    KVPoolProblem.BAD_ANSWER: (Reason.METRIC_MISSING, "did not return a vLLM metrics page"),
    KVPoolProblem.NO_METRIC: (
        Reason.METRIC_MISSING,
        f"does not publish vllm:cache_config_info with a number of blocks; {_SWITCH}",
    ),
    KVPoolProblem.TOO_LARGE: (
        Reason.METRIC_MISSING,
        "returned a page too large to be from vLLM (4 MiB, 64 series of the metric, 8 KiB each are read)",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the engines' figures say of one tier's plan. `correction` is a new one, to be recorded."""

    status: ConditionStatus
    reason: Reason
    message: str
    verified: VerifiedStatus | None = None
    correction: Correction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSizing:
    """One tier's plan and what runs of it, as `verify` needs them."""

    name: str
    inputs: SizingInput
    plan: SizingPlan  # in force: with `correction`
    key: str
    correction: Correction | None
    live: LiveTier
    running_max_num_seqs: int | None  # of the template that stays or comes; None where it is not on record
    rolling: bool  # the live pod template is about to be replaced
    suspended: bool
    before: VerifiedStatus | None  # the last status


def verify(tier: TierSizing, reports: Mapping[str, KVPoolReport]) -> Verdict:
    """The verdict on the plan in force, by the smallest KV pool among the ready replicas of the newest revision.

    For replicas that are not read yet, as after a restart of the operator, the last status speaks if it is about the
    same plan; but nothing is corrected by it.
    """
    pods = () if tier.rolling else tuple(pod for pod in tier.live.current_pods if pod.ready)
    found = tuple((pod, reports[engine_start(pod)]) for pod in pods if engine_start(pod) in reports)
    pools = [report for _, report in found if isinstance(report, KVPool)]
    if len(found) < len(pods) and (remembered := _remembered(tier)) is not None:
        verdict = _compare(tier, _smallest([*pools, remembered]))
        if verdict.correction is None:
            return verdict
    return _compare(tier, _smallest(pools)) if pools else _unknown(tier, pods, found)


def _smallest(pools: Iterable[KVPool]) -> KVPool:
    return min(pools, key=lambda pool: (pool.usable_kv_tokens, pool.block_size))


def _remembered(tier: TierSizing) -> KVPool | None:
    before = tier.before
    if before is None or before.planned_usable_kv_tokens != tier.plan.usable_kv_tokens:
        return None
    return KVPool(num_blocks=before.num_blocks, block_size=before.block_size)


def _compare(tier: TierSizing, pool: KVPool) -> Verdict:
    planned = tier.plan.usable_kv_tokens
    figures = f"the engine's KV pool holds {pool.usable_kv_tokens:,} tokens; {planned:,} were planned"
    verified = VerifiedStatus(
        num_blocks=pool.num_blocks,
        block_size=pool.block_size,
        usable_kv_tokens=pool.usable_kv_tokens,
        planned_usable_kv_tokens=planned,
    )
    if 1000 * pool.usable_kv_tokens < (1000 - TOLERANCE_PERMILLE) * planned:
        return _smaller(tier, pool, figures, verified)
    more = pool.usable_kv_tokens - planned
    spare = f"; {more:,} tokens ({100 * more // planned} %) are not used" if _is_much(more, planned) else ""
    return Verdict(
        status=ConditionStatus.TRUE,
        reason=Reason.CORRECTED if tier.correction else Reason.VERIFIED,
        message=f"tier {tier.name}: {figures}{_corrected_words(tier)}{spare}",
        verified=verified,
    )


def _corrected_words(tier: TierSizing) -> str:
    if tier.correction is None:
        return ""
    was, now = tier.correction.planned_max_num_seqs, tier.plan.max_num_seqs
    limit = f", max_num_seqs from {was:,} to {now:,}" if now != was else ""
    return f" (corrected from {tier.correction.planned_usable_kv_tokens:,}{limit})"


def _is_much(more: int, planned: int) -> bool:
    return 1000 * more > TOLERANCE_PERMILLE * planned


def _unknown(tier: TierSizing, pods: tuple[LivePod, ...], found: Iterable[tuple[LivePod, KVPoolReport]]) -> Verdict:
    for pod, report in found:
        if isinstance(report, KVPoolProblem):
            reason, words = _PROBLEMS[report]
            text = f"the metrics port of {pod.name} {words}; the plan stays as it is, unverified"
            return _not_known(tier, reason, text)
    waits = "its engines' KV pools are being read" if pods else "no ready replica of the newest revision yet"
    return _not_known(tier, Reason.NOT_VERIFIED, waits)


def _not_known(tier: TierSizing, reason: Reason, text: str, verified: VerifiedStatus | None = None) -> Verdict:
    return Verdict(
        status=ConditionStatus.UNKNOWN, reason=reason, message=f"tier {tier.name}: {text}", verified=verified
    )


def _smaller(tier: TierSizing, pool: KVPool, figures: str, verified: VerifiedStatus) -> Verdict:
    """A pool smaller than planned by more than the tolerance: derive again from the real one."""
    real = cached_size(with_pool(tier.inputs, pool))
    if isinstance(real, DoesNotFit):
        text = (
            f"{figures}, too small for one request of {tier.plan.max_model_len:,} tokens and what else is planned for;"
            " the pods keep running; shorten the budgets, use kvCacheDType FP8, raise engine.kvCacheMemory or"
            " accelerator.perReplica, and check that model.configJSON belongs to this model"
        )
        return _false(tier, Reason.KV_POOL_TOO_SMALL, text, verified)
    running = tier.running_max_num_seqs
    if running != tier.plan.max_num_seqs:
        # The pods run what an earlier version of the operator planned; only their user's next change may roll them.
        if running is not None and running <= real.max_num_seqs:
            text = f"{figures}; the {running:,} sequences it runs with fit the real pool"
            return Verdict(
                status=ConditionStatus.TRUE,
                reason=Reason.VERIFIED,
                message=f"tier {tier.name}: {text}",
                verified=verified,
            )
        text = f"{figures}; the pods run an earlier plan, which the next change of the spec replaces"
        return _not_known(tier, Reason.NOT_VERIFIED, text, verified)
    lower = real.max_num_seqs < tier.plan.max_num_seqs
    change = (
        f"max_num_seqs {tier.plan.max_num_seqs:,} -> {real.max_num_seqs:,}"
        if lower
        else "maxNumSeqs stays as set"
        if tier.plan.limited_by is Limit.EXPLICIT
        else "max_num_seqs stays"
    )
    if tier.suspended:
        return _false(tier, Reason.KV_POOL_SMALLER, f"{figures}; suspended, so not corrected ({change})", verified)
    before = tier.correction
    correction = Correction(
        key=tier.key,
        pool=pool,
        planned_usable_kv_tokens=before.planned_usable_kv_tokens if before else tier.plan.usable_kv_tokens,
        planned_max_num_seqs=before.planned_max_num_seqs if before else tier.plan.max_num_seqs,
        max_num_seqs=real.max_num_seqs if lower else before.max_num_seqs if before else None,
    )
    return _false(tier, Reason.KV_POOL_SMALLER, f"{figures}; correcting: {change}", verified, correction)


def _false(
    tier: TierSizing, reason: Reason, text: str, verified: VerifiedStatus, correction: Correction | None = None
) -> Verdict:
    return Verdict(
        status=ConditionStatus.FALSE,
        reason=reason,
        message=f"tier {tier.name}: {text}",
        verified=verified,
        correction=correction,
    )
