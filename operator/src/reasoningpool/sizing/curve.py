"""Throughput and preemption against the number of sequences: what the chosen risk costs.

Estimates for a saturated replica (always a request waiting). A request costs the engine its share of the decode
steps, the prefill of its own prompt, and for each preemption the prefill of all it held by then:

    seconds = E[output] * step(running) / running + (E[prompt] - shared + preemptions * victim) / prefill rate

Step and prefill times are the bandwidth and compute models of `latency`: no GPU was measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from reasoningpool.sizing import latency
from reasoningpool.sizing.engine_defaults import sequence_cap
from reasoningpool.sizing.load.preemption import NONE, Preemption
from reasoningpool.sizing.operating_point import Load
from reasoningpool.sizing.solve import Solution, solve
from reasoningpool.sizing.types import SizingInput
from reasoningpool.sizing.validate import validate

_BEYOND: Final = 2.0  # the curve ends at this many times the sequences the pool carries on average
_CLOSE: Final = 1.3  # up to here the points are close together
_POINTS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """A saturated replica at one `max_num_seqs`."""

    sequences: int
    running: float  # mean number of requests that run at a time
    overflow: float  # P(what `sequences` requests hold > the pool)
    preempted_share: float  # expected share of requests preempted at least once, 0 to 1
    preemptions_per_request: float
    time_per_output_token_ms: float  # of one decode step, recomputation not counted
    output_tokens_per_second: float  # of the replica, tokens that are computed again not counted twice
    derived: bool = False  # the plan's own number


def throughput_curve(inputs: SizingInput, sequences: Iterable[int] | None = None) -> tuple[CurvePoint, ...]:
    """The curve over the stated numbers of sequences, by default some 25 from 1 to twice what the pool carries.

    The plan's own number is among the default ones. Empty when the budgets do not fit. Raises `SizingError`
    as `plan` does.
    """
    validate(inputs)
    found = solve(inputs)
    if not isinstance(found, Solution):
        return ()
    load = Load.of(found.frame)
    chosen = sorted(set(sequences)) if sequences is not None else _default_numbers(load, found)
    points: list[CurvePoint] = []
    expected = NONE
    for number in (n for n in chosen if n > 0):
        expected = _at_least(expected, load.preemption(number), number, points)
        points.append(_point(load, number, expected, derived=number == found.sequences))
    return tuple(points)


def _at_least(before: Preemption, now: Preemption, sequences: int, points: list[CurvePoint]) -> Preemption:
    """More sequences are never preempted less, nor do fewer of them run: what is above the pool only waits."""
    running = max(points[-1].running if points else 0.0, sequences - now.waiting)
    most = now if now.per_request >= before.per_request else before
    return replace(most, share=max(before.share, now.share), waiting=sequences - running)


def _point(load: Load, sequences: int, expected: Preemption, *, derived: bool) -> CurvePoint:
    inputs, resident = load.frame.inputs, load.resident
    running = max(1.0, sequences - expected.waiting)
    step_ms = load.time_per_output_token_ms(running)
    recomputed = expected.per_request * load.tokens_of(expected.victim_blocks)
    prefilled = resident.mean_prompt_beyond(load.frame.shared_tokens) + recomputed
    output = resident.mean_output
    seconds = output * step_ms / 1000 / running + prefilled / latency.prefill_tokens_per_second(inputs)
    return CurvePoint(
        sequences=sequences,
        running=running,
        overflow=load.overflow(sequences),
        preempted_share=expected.share,
        preemptions_per_request=expected.per_request,
        time_per_output_token_ms=step_ms,
        output_tokens_per_second=output / seconds,
        derived=derived,
    )


def _default_numbers(load: Load, found: Solution) -> list[int]:
    """Few up to half of the plan's number, then closely to a third beyond what the pool carries, then the end."""
    carried = load.frame.free_blocks(found.derived) / load.demand.mean
    cap = sequence_cap(load.frame.inputs)
    half, end = found.derived // 2, min(ceil(_BEYOND * carried), cap)
    step = max(1, round((_CLOSE * carried - half) / _POINTS))
    chosen = {1, half // 4, half // 2, *range(max(half, 1), min(ceil(_CLOSE * carried), cap) + 1, step)}
    chosen |= {found.worst_case, found.derived, found.sequences, end}
    return sorted(n for n in chosen if n > 0)
