"""The forecast peak against a count step by step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoningpool_runtime.admission.forecast import Forecast

SEQUENCES = st.lists(st.tuples(st.integers(0, 400), st.integers(1, 300)), min_size=1, max_size=12)


def of(sequences: list[tuple[int, int]], block: int = 16) -> Forecast:
    held, remaining = np.array(sequences, dtype=float).reshape(-1, 2).T
    return Forecast.of(held, remaining[:, None], np.zeros((len(held), 1)), block)


def forecast(sequences: list[tuple[int, int]], block: int = 16) -> float:
    return float(of(sequences, block).peaks()[0])


def counted(sequences: list[tuple[int, int]], block: int) -> int:
    """Blocks of all sequences at every step, whole blocks each."""
    return max(
        sum(-(-(held + step) // block) for held, remaining in sequences if remaining >= step)
        for step in range(1, max(remaining for _, remaining in sequences) + 1)
    )


@settings(deadline=None)
@given(SEQUENCES, st.sampled_from([1, 16, 32]))
def test_peak_is_the_counted_one_but_for_rounding(sequences: list[tuple[int, int]], block: int) -> None:
    # A sequence's rounding is taken as the mean over all lengths: half a block off at the most.
    slack = len(sequences) * (block - 1) / (2 * block)
    assert forecast(sequences, block) == pytest.approx(counted(sequences, block), abs=slack + 1e-9)


@settings(deadline=None)
@given(SEQUENCES, st.randoms(use_true_random=False))
def test_peak_does_not_depend_on_order(sequences: list[tuple[int, int]], chance: np.random.Generator) -> None:
    shuffled = list(sequences)
    chance.shuffle(shuffled)
    assert forecast(shuffled) == pytest.approx(forecast(sequences))


@settings(deadline=None)
@given(SEQUENCES, st.tuples(st.integers(0, 400), st.integers(1, 300)))
def test_another_sequence_never_lowers_the_peak(sequences: list[tuple[int, int]], other: tuple[int, int]) -> None:
    assert forecast([*sequences, other]) >= forecast(sequences) - 1e-9


@settings(deadline=None)
@given(SEQUENCES, st.integers(1, 300))
def test_a_longer_output_never_lowers_the_peak(sequences: list[tuple[int, int]], more: int) -> None:
    (held, remaining), *others = sequences
    assert forecast([(held, remaining + more), *others]) >= forecast(sequences) - 1e-9


def test_sequences_that_end_one_after_the_other_do_not_add_up() -> None:
    # The short one is gone long before the other is at its longest: 12 + 2 blocks, not 12 + 6.
    assert forecast([(0, 192), (80, 16)]) < 13.0


def test_shared_blocks_are_freed_with_their_sequence() -> None:
    held, remaining = np.array([0.0, 0.0]), np.array([[10.0], [100.0]])
    assert Forecast.of(held, remaining, np.array([[50.0], [0.0]]), 1).peaks()[0] == 100.0
    assert Forecast.of(held, remaining, np.array([[0.0], [50.0]]), 1).peaks()[0] == 150.0


@settings(deadline=None)
@given(st.one_of(st.just([]), SEQUENCES), st.tuples(st.integers(0, 400), st.integers(1, 300)))
def test_one_more_sequence_is_the_same_as_all_of_them(sequences: list[tuple[int, int]], other: tuple[int, int]) -> None:
    held, remaining = other
    found = of(sequences).peaks_with(held, np.array([float(remaining)]), 0.0)[0]
    assert found == pytest.approx(forecast([*sequences, other]))
