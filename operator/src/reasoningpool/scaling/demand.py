"""Demand in tokens of KV cache, from samples of which some may be missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isfinite

from reasoningpool.scaling.types import PodSample, ScalingPolicy, TierCapacity, TierState


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Tokens that requests hold or will hold.

    The two figures differ where replicas have no fresh sample: for growing these are taken as empty, for shrinking as
    full, as the HPA does with missing pods. Replicas that are not ready count as full too: nobody knows what they will
    have to serve.
    """

    tokens_to_grow: float
    tokens_to_shrink: float
    waiting: int
    preemptions: float
    finished: float
    fresh: int
    missing: int

    @property
    def fresh_share(self) -> float:
        """Share of ready replicas with fresh data; 1 where none is ready."""
        known = self.fresh + self.missing
        return self.fresh / known if known else 1.0


def is_usable(sample: PodSample, policy: ScalingPolicy) -> bool:
    """Fresh and made of numbers: NaN, infinities, negative counts and ages from the future are no data."""
    values = (sample.kv_usage, sample.running, sample.waiting, sample.preemptions, sample.finished)
    return (
        0 <= sample.age_seconds <= policy.max_sample_age_seconds
        and all(isfinite(value) and value >= 0 for value in values)
        and sample.kv_usage <= 1.5
    )


def demand(samples: Sequence[PodSample], state: TierState, capacity: TierCapacity, policy: ScalingPolicy) -> Demand:
    """What the requests of a tier need: `max(in use, running * mean resident, committed) + waiting * mean resident`.

    A running request counts with at least what it will hold on average over its life: one that was just admitted holds
    its prompt only, and its thinking is still to come. One sample counts per pod.
    """
    fresh = {sample.pod: sample for sample in samples if is_usable(sample, policy)}
    missing = max(0, state.ready - len(fresh))
    unknown = max(0, state.desired - state.draining - len(fresh))
    waiting = sum(sample.waiting for sample in fresh.values()) + state.queued_at_gateway
    held = sum(_held(sample, capacity) for sample in fresh.values())
    queued = waiting * capacity.mean_resident_tokens
    return Demand(
        tokens_to_grow=held + queued,
        tokens_to_shrink=held + queued + unknown * capacity.usable_kv_tokens,
        waiting=waiting,
        preemptions=sum(sample.preemptions for sample in fresh.values()),
        finished=sum(sample.finished for sample in fresh.values()),
        fresh=len(fresh),
        missing=missing,
    )


def _held(sample: PodSample, capacity: TierCapacity) -> float:
    in_use = min(1.0, sample.kv_usage) * capacity.usable_kv_tokens
    committed = sample.committed_tokens
    known = committed if committed is not None and isfinite(committed) and committed >= 0 else 0.0
    return max(in_use, sample.running * capacity.mean_resident_tokens, known)


def replicas_for(tokens: float, usage: float, capacity: TierCapacity) -> int:
    """Replicas whose pools hold these tokens at this usage; 0 for none.

    >>> replicas_for(150_000, 0.7, TierCapacity(usable_kv_tokens=100_000, mean_resident_tokens=1, max_num_seqs=8,
    ...     preemption_risk=0.01))
    3
    """
    return ceil(tokens / (usage * capacity.usable_kv_tokens) - 1e-9)


def excess_preemptions(found: Demand, capacity: TierCapacity) -> float:
    """Preemptions beyond the share that the tier's risk allows; the sizing expects that share at full load."""
    return max(0.0, found.preemptions - capacity.preemption_risk * found.finished)
