"""What is predicted of output lengths from finishes, running outputs and the stated lengths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoningpool_runtime.admission.lengths import WINDOW, LengthHistory

NONE = np.zeros(0, dtype=np.int64)
RANKS = (np.arange(400) + 0.5) / 400


def mean_total(history: LengthHistory, generated: int, cap: int, running: np.ndarray = NONE) -> float:
    made, caps = np.array([generated]), np.array([cap])
    return float(history.survival(running, cap).totals(made, caps, RANKS[None, :]).mean())


def learnt(lengths: list[int]) -> LengthHistory:
    history = LengthHistory()
    for length in lengths:
        history.record(length, ended=True)
    return history


def test_without_history_an_output_takes_its_cap() -> None:
    assert mean_total(LengthHistory(), 0, 1000) == 1000


def test_stated_lengths_stand_in_for_history() -> None:
    assert mean_total(LengthHistory(prior=(100,) * 19), 0, 1000) == pytest.approx(0.95 * 100 + 0.05 * 1000, rel=0.02)


def test_finishes_outweigh_the_stated_lengths() -> None:
    history = learnt([50] * 60)
    history.expect((100,))
    assert mean_total(history, 0, 1000) < 75


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_lengths_that_are_stated_wrong_by_a_factor_of_two_are_learnt(factor: float) -> None:
    chance = np.random.default_rng(1)
    truth = chance.lognormal(np.log(400), 0.5, 200).astype(int)
    history = learnt(list(truth))
    history.expect(tuple(int(factor * length) for length in truth[:20]))
    assert mean_total(history, 0, 4000) == pytest.approx(truth.mean(), rel=0.1)


def test_old_finishes_fade_when_lengths_change() -> None:
    assert mean_total(learnt([100] * WINDOW + [200] * 256), 0, 400) == pytest.approx(175, rel=0.05)


@settings(deadline=None)
@given(st.lists(st.integers(1, 500), min_size=1, max_size=60), st.integers(0, 400))
def test_conditional_length_is_that_of_the_longer_finishes(lengths: list[int], generated: int) -> None:
    survival = learnt(lengths).survival(NONE, 500)
    totals = survival.totals(np.array([generated]), np.array([500]), RANKS[None, :])
    longer = {length for length in lengths if length > generated} | {500}
    assert set(totals[0].tolist()) <= longer


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 500), max_size=60),
    st.lists(st.integers(0, 500), max_size=10),
    st.integers(0, 600),
    st.integers(1, 600),
)
def test_lengths_lie_beyond_what_is_generated_and_within_the_cap(
    lengths: list[int], running: list[int], generated: int, cap: int
) -> None:
    survival = learnt(lengths).survival(np.array(running, dtype=np.int64), cap)
    totals = survival.totals(np.array([generated]), np.array([cap]), RANKS[None, :])[0]
    assert (totals <= cap).all()
    assert (totals > min(generated, cap - 1)).all()
    assert (np.diff(totals) >= 0).all()
    assert (np.diff(survival.chances) <= 1e-12).all()
    assert ((survival.chances >= 0) & (survival.chances <= 1)).all()


def test_outputs_that_still_run_correct_the_bias_of_early_finishes() -> None:
    # Half of the outputs take 10 tokens, half 1000: after 20 tokens only short ones have finished.
    history = learnt([10] * 50)
    assert mean_total(history, 0, 1000) < 60
    assert mean_total(history, 0, 1000, running=np.full(50, 20)) > 450


def test_a_cancelled_output_is_known_to_be_longer_only() -> None:
    history = learnt([100] * 20)
    for _ in range(20):
        history.record(50, ended=False)
    assert mean_total(history, 60, 1000) == pytest.approx(mean_total(learnt([100] * 20), 60, 1000), rel=0.05)


def test_mean_resident_follows_the_growth_of_an_output() -> None:
    survival = learnt([500] * WINDOW).survival(NONE, 500)
    assert survival.mean() == pytest.approx(500)
    assert survival.mean_resident(1000) == pytest.approx(1250)
