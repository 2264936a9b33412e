"""From a log to the requests of a tier: efforts, thinking, what budgets cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoningpool.requests.distribution import lengths, parse_percentiles, percentiles
from reasoningpool.requests.errors import CapacityError
from reasoningpool.requests.log import Names
from reasoningpool.requests.stated_requests import stated_requests
from reasoningpool.requests.tier_requests import tier_share
from reasoningpool.sizing.types import TokenQuantiles
from unit.capacity.builders import effort, log, requests

LOW, HIGH = effort("low", 100, 100, share=75.0), effort("high", 1000, 500, share=25.0)


def names(*values: str) -> Names:
    known = tuple(dict.fromkeys(values))
    return Names(values=known, codes=np.array([known.index(value) for value in values], dtype=np.int32))


def test_efforts_of_the_log_are_taken_by_name_and_others_left_out() -> None:
    found = requests(log([5, 6, 7], effort=names("high", "max", "low"), thinking=[1, 1, 1]), LOW, HIGH)
    assert found.effort.tolist() == [1, 0]
    assert found.told_efforts
    assert any("1 requests of efforts the tier does not define ('max')" in note for note in found.notes)


def test_unrecorded_efforts_follow_length_and_share() -> None:
    found = requests(log([900, 10, 20, 30], prompt=[1, 2, 3, 4]), HIGH, LOW)
    assert found.effort.tolist() == [0, 1, 1, 1]
    assert not found.told_efforts
    assert any("high 25 %, low 75 %" in note for note in found.notes)


def test_stated_shares_win_over_the_tiers() -> None:
    found = requests(log([900, 10, 20, 30]), LOW, HIGH, shares={"low": 1, "high": 1})
    assert found.effort.tolist() == [1, 0, 0, 1]


def test_output_alone_is_split_like_the_budgets_with_a_note() -> None:
    found = requests(log([150]), effort("high", 1000, 500))
    assert (found.thinking[0], found.answer[0]) == (100, 50)
    assert any("output is split in the proportion of the budgets" in note for note in found.notes)
    assert requests(log([150]), effort(), thinking_share=0.9).thinking[0] == 135


def test_without_a_thinking_budget_everything_is_answer() -> None:
    found = requests(log([150]), effort("none", 0, 500), thinking_share=0.9)
    assert (found.thinking[0], found.answer[0]) == (0, 150)
    assert not any("split" in note for note in found.notes)


def test_budgets_cut_thinking_and_answer_each_where_the_engine_enforces_them() -> None:
    long = log([1700, 20], thinking=[1500, 10])
    thinking, answer = requests(long, effort("high", 1000, 500)).served
    assert (thinking.tolist(), answer.tolist()) == ([1000, 10], [200, 10])
    thinking, answer = requests(long, effort("high", 1000, 500), thinking_enforced=False).served
    assert (thinking.tolist(), answer.tolist()) == ([1500, 10], [0, 10])


def test_other_tiers_of_the_log_are_left_out() -> None:
    whole = log([5, 6, 7], tier=names("chat", "reasoning", "chat"), thinking=[0, 0, 0])
    assert tier_share(whole, "reasoning") == pytest.approx(1 / 3)
    assert requests(whole, LOW).answer.tolist() == [6]
    with pytest.raises(CapacityError, match="holds no request of tier 'reasoning'; its tiers are 'chat'"):
        requests(log([5], tier=names("chat")), LOW)


def test_log_of_other_efforts_only_is_reported() -> None:
    with pytest.raises(CapacityError, match="no request of an effort of tier reasoning"):
        requests(log([5], effort=names("max")), LOW, HIGH)


def test_share_of_an_unknown_effort_is_rejected() -> None:
    with pytest.raises(CapacityError, match="has no effort 'max'"):
        requests(log([5, 6]), LOW, HIGH, shares={"max": 1})


def test_shares_of_what_the_log_tells_itself_are_refused() -> None:
    told = log([5, 6], effort=names("low", "high"), thinking=[1, 2])
    with pytest.raises(CapacityError, match="already has an effort column"):
        requests(told, LOW, HIGH, shares={"low": 1.0})
    with pytest.raises(CapacityError, match="already tells thinking from answers"):
        requests(told, LOW, HIGH, thinking_share=0.5)


def test_effort_nobody_used_keeps_its_budgets_for_the_longest_length() -> None:
    low, high = requests(log([5, 6], effort=names("low", "low"), prompt=[9, 9]), LOW, HIGH).observed_efforts()
    assert low.output_distribution == TokenQuantiles(p50=5, p90=6, p99=6)
    assert (high.thinking_tokens, high.output_distribution) == (1000, None)
    assert 0 < high.share < 1e-6 < low.share


def test_percentiles_of_drawn_lengths_are_the_stated_ones() -> None:
    stated = parse_percentiles("1000,5000,12000")
    found = percentiles(lengths(stated))
    assert (found.p50, found.p90, found.p99) == pytest.approx((1000, 5000, 12000), rel=0.01)


@pytest.mark.parametrize("text", ["", "1", "1,2", "3,2,1", "0,1,2", "a,b,c", "1,2,3,4", "1,2,99999999", "1.5,2,3"])
def test_malformed_percentiles_are_rejected(text: str) -> None:
    with pytest.raises(CapacityError, match="is not p50,p90,p99"):
        parse_percentiles(text)


def test_stated_distributions_by_effort_fall_back_on_the_tier() -> None:
    own = effort("low", 100, 100, share=50.0, output_distribution=TokenQuantiles(p50=10, p90=20, p99=30))
    found = stated_requests((own, HIGH), {"high": TokenQuantiles(p50=100, p90=200, p99=300)}, {}, None)
    mixed = requests(found, own, HIGH)
    low, high = mixed.observed_efforts()
    assert low.output_distribution is not None
    assert high.output_distribution is not None
    assert (low.output_distribution.p90, high.output_distribution.p90) == (20, 200)
    assert mixed.share(0) == pytest.approx(50 / 75)


def test_whole_budgets_are_assumed_with_a_note_where_nothing_is_known() -> None:
    found = stated_requests((LOW, HIGH), {}, {}, None)
    assert set(found.output.tolist()) == {200, 1500}
    assert any("effort low, high uses its whole budget" in note for note in found.notes)


@pytest.mark.parametrize(
    ("output", "prompt", "shares", "words"),
    [
        ({"max": TokenQuantiles(p50=1, p90=2, p99=3)}, {}, None, "has no effort 'max'"),
        ({}, {}, {"max": 1.0}, "has no effort 'max'"),
        (
            {None: TokenQuantiles(p50=1, p90=2, p99=3), "low": TokenQuantiles(p50=1, p90=2, p99=3)},
            {},
            None,
            "one distribution for all efforts or one for each",
        ),
    ],
)
def test_distributions_that_do_not_fit_the_tier_are_rejected(output, prompt, shares, words) -> None:
    with pytest.raises(CapacityError, match=words):
        stated_requests((LOW, HIGH), output, prompt, shares)


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 5000), min_size=1, max_size=200),
    st.floats(0.01, 0.99),
)
def test_split_by_length_keeps_every_request_and_the_shares(output: list[int], share: float) -> None:
    found = requests(log(output), LOW, HIGH, shares={"low": share, "high": 1 - share})
    assert (found.thinking + found.answer).tolist() == output
    assert abs(found.share(0) - share) <= 1 / len(output)
    low, high = np.array(output)[found.effort == 0], np.array(output)[found.effort == 1]
    assert not len(low) or not len(high) or low.max() <= high.min()
