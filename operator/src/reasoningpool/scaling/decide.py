"""The decision: demand, preemptions, stabilisation, rates and bounds, each a step that says what it did.

Order matters. Signals propose, everything after them only holds back, and bounds come last, so that no rate or window
keeps a tier outside what its user allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import floor

from reasoningpool.scaling.demand import Demand, demand, excess_preemptions, replicas_for
from reasoningpool.scaling.stabilize import stabilized
from reasoningpool.scaling.types import (
    Bounds,
    Decision,
    Direction,
    History,
    LimitedBy,
    PodSample,
    ScalingPolicy,
    Step,
    TierCapacity,
    TierState,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What the stages look at and none changes."""

    demand: Demand
    state: TierState
    capacity: TierCapacity
    policy: ScalingPolicy
    now: float


@dataclass(slots=True)
class _Trace:
    """The number on its way through the stages."""

    replicas: int
    steps: list[Step] = field(default_factory=list)
    limited: list[LimitedBy] = field(default_factory=list)

    def step(self, signal: str, value: str, replicas: int, reason: str, *, limit: LimitedBy | None = None) -> None:
        if limit is not None and replicas != self.replicas:
            self.limited.append(limit)
        self.replicas = replicas
        self.steps.append(Step(signal=signal, value=value, replicas=replicas, reason=reason))


def decide(
    samples: Sequence[PodSample],
    state: TierState,
    *,
    capacity: TierCapacity,
    policy: ScalingPolicy,
    bounds: Bounds,
    history: History,
    now: float,
) -> Decision:
    """Replicas for a tier. Deterministic; more load never gives fewer replicas, all else equal.

    `history` is what the last decision returned, or `History()` after a restart.
    """
    found = demand(samples, state, capacity, policy)
    trace = _Trace(state.desired)
    history = replace(history, started=now if history.started is None else history.started)
    available = found.fresh_share >= policy.fresh_share_to_grow
    if available:
        facts = _Facts(demand=found, state=state, capacity=capacity, policy=policy, now=now)
        _from_demand(trace, facts)
        history = _from_preemptions(trace, facts, history)
        history = _stabilize(trace, facts, history)
        _limit_rates(trace, facts, history)
    else:
        text = f"{found.fresh} of {found.fresh + found.missing} ready replicas"
        trace.step("metrics", text, state.desired, "too few replicas have fresh metrics; the size is held")
        trace.limited.append(LimitedBy.METRICS)
    _limit_bounds(trace, bounds)
    return _decision(trace, state, history, now, available=available)


def _from_demand(trace: _Trace, facts: _Facts) -> None:
    found, state, capacity, policy = facts.demand, facts.state, facts.capacity, facts.policy
    more = replicas_for(found.tokens_to_grow, policy.target_usage, capacity)
    fewer = replicas_for(found.tokens_to_shrink, policy.scale_down_usage, capacity)
    value = f"{round(found.tokens_to_grow):,} tokens, {found.waiting:,} requests waiting"
    if more > state.desired:
        reason = f"{more} replicas keep KV usage at {policy.target_usage:.0%}"
        trace.step("demand", value, more, reason)
    elif fewer < state.desired:
        reason = f"{fewer} replicas keep KV usage below {policy.scale_down_usage:.0%}"
        trace.step("demand", value, fewer, reason)
    else:
        trace.step("demand", value, state.desired, "between the targets for growing and for shrinking")


def _from_preemptions(trace: _Trace, facts: _Facts, history: History) -> History:
    """More preemptions than the risk allows: one replica more once those asked for serve, and no shrinking."""
    found, state, capacity, now = facts.demand, facts.state, facts.capacity, facts.now
    excess = excess_preemptions(found, capacity)
    if excess >= 1:
        history = replace(history, last_excess_preemption=now)
        value = f"{found.preemptions:.0f} preemptions, {found.finished:.0f} requests finished"
        # Replicas that are starting are the answer to the same preemptions already.
        least = state.desired if state.starting else state.desired + 1
        if trace.replicas < least:
            reason = f"more preemptions than the risk of {capacity.preemption_risk:.1%} allows"
            trace.step("preemptions", value, least, reason)
        return history
    last = history.last_excess_preemption
    recent = last is not None and now - last < facts.policy.scale_down_stabilization_seconds
    if recent and trace.replicas < state.desired:
        reason = "preemptions within the scale-down window; not shrinking"
        trace.step("preemptions", "0 in excess now", state.desired, reason, limit=LimitedBy.PREEMPTIONS)
    return history


def _stabilize(trace: _Trace, facts: _Facts, history: History) -> History:
    policy = facts.policy
    wanted = trace.replicas
    held, history = stabilized(wanted, facts.state.desired, policy, history, facts.now)
    if held != wanted:
        window = policy.scale_up_stabilization_seconds if wanted > held else policy.scale_down_stabilization_seconds
        reason = f"held by the stabilization window of {window:g} s"
        trace.step("stabilization", f"{wanted} recommended", held, reason, limit=LimitedBy.STABILIZED)
    return history


def _limit_rates(trace: _Trace, facts: _Facts, history: History) -> None:
    state, policy = facts.state, facts.policy
    wanted = trace.replicas
    if wanted > state.desired:
        serving = max(1, state.desired - state.starting)
        most = serving + max(policy.most_added_at_once, floor(serving * policy.most_added_share))
        if wanted > max(most, state.desired):
            reason = "as many replicas as may start at the same time"
            trace.step("rate", f"{state.starting} starting", max(most, state.desired), reason, limit=LimitedBy.RATE)
    elif wanted < state.desired:
        _limit_removal(trace, facts, history)


def _limit_removal(trace: _Trace, facts: _Facts, history: History) -> None:
    state, policy, now = facts.state, facts.policy, facts.now
    if state.starting:
        reason = "replicas are still starting; not shrinking"
        trace.step("rate", f"{state.starting} starting", state.desired, reason, limit=LimitedBy.STARTING)
        return
    last = max((at for at in (history.last_scale_down, history.last_scale_up) if at is not None), default=float("-inf"))
    if now - last < policy.removal_interval_seconds:
        reason = f"at most {policy.most_removed_at_once} removed in {policy.removal_interval_seconds:g} s"
        trace.step("rate", f"{now - last:.0f} s since the last change", state.desired, reason, limit=LimitedBy.RATE)
        return
    least = state.desired - policy.most_removed_at_once
    if trace.replicas < least:
        reason = f"at most {policy.most_removed_at_once} removed in {policy.removal_interval_seconds:g} s"
        trace.step("rate", f"{trace.replicas} recommended", least, reason, limit=LimitedBy.RATE)


def _limit_bounds(trace: _Trace, bounds: Bounds) -> None:
    wanted = trace.replicas
    if wanted > bounds.maximum:
        reason = f"the maximum is {bounds.maximum}"
        trace.step("maximum", f"{wanted} wanted", bounds.maximum, reason, limit=LimitedBy.TOO_MANY_REPLICAS)
    if bounds.most_by_gpus is not None and trace.replicas > bounds.most_by_gpus:
        most = max(bounds.most_by_gpus, 0)
        reason = f"the GPU budget leaves room for {most}"
        trace.step("GPU budget", f"{trace.replicas} wanted", most, reason, limit=LimitedBy.GPU_BUDGET)
    if trace.replicas < bounds.minimum:
        reason = f"the minimum is {bounds.minimum}"
        value = f"{trace.replicas} wanted"
        trace.step("minimum", value, bounds.minimum, reason, limit=LimitedBy.TOO_FEW_REPLICAS)


def _decision(trace: _Trace, state: TierState, history: History, now: float, *, available: bool) -> Decision:
    direction = Direction.NONE
    if trace.replicas > state.desired:
        direction, history = Direction.UP, replace(history, last_scale_up=now)
    elif trace.replicas < state.desired:
        direction, history = Direction.DOWN, replace(history, last_scale_down=now)
    return Decision(
        replicas=trace.replicas,
        direction=direction,
        steps=tuple(trace.steps),
        limited=tuple(trace.limited),
        metrics_available=available,
        history=history,
    )
