"""Stabilisation windows over past recommendations, as the HPA has them."""

from __future__ import annotations

from dataclasses import replace

from reasoningpool.scaling.types import History, Recommendation, ScalingPolicy


def stabilized(wanted: int, current: int, policy: ScalingPolicy, history: History, now: float) -> tuple[int, History]:
    """The number that the windows allow, and the history with this recommendation in it.

    Shrinking takes the largest recommendation of its window, and none before a whole window has been seen; growing the
    smallest of its own. Recommendations are kept for the longer window; of equal neighbours in a row the first and the
    last are enough.
    """
    longest = max(policy.scale_up_stabilization_seconds, policy.scale_down_stabilization_seconds)
    kept = tuple(r for r in history.recommendations if now - longest <= r.at <= now)
    recommendations = _appended(kept, Recommendation(now, wanted))
    history = replace(history, recommendations=recommendations)
    if wanted > current:
        window = policy.scale_up_stabilization_seconds
        allowed = min(r.replicas for r in recommendations if now - r.at <= window)
        return max(current, allowed), history
    if wanted < current:
        window = policy.scale_down_stabilization_seconds
        if history.started is None or now - history.started < window:
            return current, history
        allowed = max(r.replicas for r in recommendations if now - r.at <= window)
        return min(current, allowed), history
    return current, history


def _appended(kept: tuple[Recommendation, ...], new: Recommendation) -> tuple[Recommendation, ...]:
    if len(kept) >= 2 and kept[-1].replicas == kept[-2].replicas == new.replicas:
        return (*kept[:-1], new)
    return (*kept, new)
