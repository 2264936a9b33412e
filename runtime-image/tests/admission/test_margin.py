"""The margin follows the preemptions whatever causes them."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from reasoningpool_runtime.admission.margin import HIGHEST, LEARNING, LOWEST, START, STEP, Margin


@settings(deadline=None)
@given(st.integers(0, 2**32), st.floats(0.0, 5.0), st.sampled_from([0.005, 0.02]))
def test_preempted_share_is_bounded_in_the_long_run(seed: int, needed: float, target: float) -> None:
    """Any load that does not preempt at a margin above `needed`, and always below it."""
    chance, margin, preemptions = random.Random(seed), Margin(target), 0
    finishes = 3000
    for _ in range(finishes):
        if margin.deviations < needed and chance.random() < 0.5:
            preemptions += 1
            margin.preempted()
        margin.finished()
    assert preemptions / finishes <= target + ((HIGHEST - LOWEST) / STEP + LEARNING) / finishes


def test_without_preemptions_the_margin_falls_to_its_least() -> None:
    margin = Margin(0.01)
    margin.finished(10_000)
    assert margin.deviations == LOWEST


def test_the_margin_has_a_most() -> None:
    margin = Margin(0.01)
    margin.finished(LEARNING)
    margin.preempted(1000)
    assert margin.deviations == HIGHEST


def test_preemptions_before_anything_is_learnt_leave_the_margin() -> None:
    margin = Margin(0.01)
    margin.preempted(10)
    assert margin.deviations == START
