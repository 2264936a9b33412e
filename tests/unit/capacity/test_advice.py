"""Which budgets to change, and to what."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from reasoningpool.capacity.advice import Advice, Budget, Kind, advise
from reasoningpool.requests.log import RequestLog
from reasoningpool.sizing import SizingInput, SizingPlan, plan
from reasoningpool.sizing.types import Effort
from unit.capacity.builders import effort, log, requests
from unit.sizing.builders import sizing_input


def lognormal(median: float, spread: float = 0.5, count: int = 2000) -> list[int]:
    return np.maximum(1, np.random.default_rng(1).lognormal(np.log(median), spread, count)).astype(int).tolist()


def advice(found: RequestLog, *efforts: Effort) -> list[Advice]:
    inputs: SizingInput = replace(sizing_input(), efforts=efforts)
    mixed = requests(found, *efforts)
    answer = plan(replace(inputs, efforts=mixed.observed_efforts()))
    assert isinstance(answer, SizingPlan)
    return list(advise(mixed, inputs, answer.max_num_seqs))


def runs(thinking: list[int], answer: list[int], prompt: list[int] | None = None) -> RequestLog:
    total = (np.array(thinking) + np.array(answer)).tolist()
    return log(total, thinking=thinking, **({} if prompt is None else {"prompt": prompt}))


def test_thinking_budget_that_cuts_over_five_percent_suggests_a_larger_one() -> None:
    thinking = lognormal(1000)
    (found,) = advice(runs(thinking, lognormal(400)), effort("high", 1500, 1024))
    assert (found.kind, found.effort, found.budget) == (Kind.CUTS_TOO_MUCH, "high", Budget.THINKING)
    assert found.share == np.mean(np.array(thinking) >= 1500)
    assert np.quantile(thinking, 0.99) <= found.suggested < np.quantile(thinking, 0.99) + 256
    assert f"set {found.suggested:,}" in found.text
    assert re.search(r"max_num_seqs (stays )?[\d,]+", found.text)


def test_budget_that_cuts_less_is_left_alone() -> None:
    thinking = lognormal(1000)
    limit = int(np.quantile(thinking, 0.96))
    assert advice(runs(thinking, lognormal(400)), effort("high", limit, 1536)) == []


def test_log_that_ends_at_the_budget_says_that_longer_is_unknown() -> None:
    thinking = np.minimum(lognormal(1000), 1500).tolist()
    (found,) = advice(runs(thinking, lognormal(400)), effort("high", 1500, 1024))
    assert found.suggested == 3000
    assert "how long they would be is not known" in found.text


def test_budget_that_nothing_comes_near_is_never_reached() -> None:
    thinking = lognormal(300)
    (found,) = advice(runs(thinking, lognormal(400)), effort("high", 16_384, 1536))
    assert (found.kind, found.budget) == (Kind.NEVER_REACHED, Budget.THINKING)
    assert max(thinking) * 1.1 <= found.suggested < max(thinking) * 1.1 + 256
    assert f"longest seen {max(thinking):,}" in found.text


def test_few_runs_do_not_show_never() -> None:
    assert advice(runs([10] * 50, [1020] * 25 + [1000] * 25), effort("high", 16_384, 1021)) == [
        entry for entry in advice(runs([10] * 50, [1020] * 25 + [1000] * 25), effort("high", 16_384, 1021))
        if entry.kind is Kind.CUTS_TOO_MUCH
    ]  # fmt: skip


def test_prompts_longer_than_the_tiers_are_advised_on() -> None:
    prompts = lognormal(3000)
    found = advice(runs(lognormal(1000), lognormal(400), prompts), effort("high", 5000, 1536))
    (entry,) = [entry for entry in found if entry.budget is Budget.PROMPT]
    assert entry.effort is None
    assert "promptTokens 4,096 is shorter than" in entry.text
    assert entry.suggested >= np.quantile(prompts, 0.99)


def test_split_that_is_only_assumed_gives_no_never_for_smaller_efforts() -> None:
    efforts = effort("low", 1024, 1024, share=50.0), effort("high", 16_384, 8192, share=50.0)
    found = advice(log(lognormal(300)), *efforts)
    assert {entry.effort for entry in found} == {"high"}


def test_suggestion_that_does_not_fit_says_so() -> None:
    thinking = lognormal(60_000, 0.3)
    found = advice(runs(thinking, lognormal(400)), effort("high", 20_000, 1536))
    assert "does not fit" in found[0].text
