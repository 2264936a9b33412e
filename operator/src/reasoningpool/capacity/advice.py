"""Budgets against what was seen: which cut too many runs, which are never reached, and what to set instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil
from typing import TYPE_CHECKING, Final

import numpy as np

from reasoningpool.requests.distribution import weighted_quantiles
from reasoningpool.requests.tier_requests import TierRequests
from reasoningpool.sizing import DoesNotFit, Effort, SizingError, SizingInput, SizingPlan, plan

if TYPE_CHECKING:
    from reasoningpool.requests.log import Floats, Ints

MOST_CUT: Final = 0.05
_NEAR: Final = 0.9  # of a budget; a budget that nothing comes near is never reached
_FEWEST_RUNS: Final = 300  # that show "never"
_MARGIN: Final = 1.1
_CENSORED: Final = 0.8  # of the cut runs end exactly at the budget: the log was recorded under it


class Budget(StrEnum):
    """A budget, by its field."""

    PROMPT = "promptTokens"
    THINKING = "thinkingTokens"
    ANSWER = "answerTokens"


class Kind(StrEnum):
    """What is wrong with a budget."""

    CUTS_TOO_MUCH = "CutsTooMuch"
    NEVER_REACHED = "NeverReached"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One budget to change. `effort` is None for the tier's promptTokens; `share` is that of runs cut, 0 to 1."""

    kind: Kind
    effort: str | None
    budget: Budget
    current: int
    suggested: int
    share: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How runs compare with one budget: all their lengths before any cut, and the share that it cuts."""

    effort: str | None
    budget: Budget
    tokens: int
    lengths: Ints
    weights: Floats | None
    cut_share: float
    told: bool  # the source told these lengths itself

    @property
    def longest(self) -> int:
        """The longest run."""
        return int(self.lengths.max()) if len(self.lengths) else 0


def reaches(requests: TierRequests) -> tuple[Reach, ...]:
    """Every budget of the tier with the lengths it bounds; a run that ends exactly at an output budget is cut.

    Budgets that stand for lengths themselves are left out: nothing was observed of them.
    """
    found: list[Reach] = []
    if requests.told_prompts:
        found.append(_reach(requests, None, Budget.PROMPT))
    for index, effort in enumerate(requests.efforts):
        if effort.name in requests.assumed or not (requests.effort == index).any():
            continue
        if effort.thinking_tokens:
            found.append(_reach(requests, index, Budget.THINKING))
        found.append(_reach(requests, index, Budget.ANSWER))
    return tuple(found)


def _reach(requests: TierRequests, index: int | None, budget: Budget) -> Reach:
    if index is None:
        tokens = requests.efforts[0].prompt_tokens
        lengths, weights, name = requests.prompt, requests.weights, None
        cut = lengths > tokens
    else:
        effort, mine = requests.efforts[index], requests.effort == index
        thinks = budget is Budget.THINKING
        tokens = effort.thinking_tokens if thinks else effort.answer_tokens
        lengths = (requests.thinking if thinks else requests.answer)[mine]
        weights = None if requests.weights is None else requests.weights[mine]
        name, cut = effort.name, lengths >= tokens
    share = float(np.average(cut, weights=weights))
    told = index is None or (requests.told_efforts and (requests.told_thinking or not _thinks(requests)))
    return Reach(
        effort=name, budget=budget, tokens=tokens, lengths=lengths, weights=weights, cut_share=share, told=told
    )


def _thinks(requests: TierRequests) -> bool:
    return any(effort.thinking_tokens for effort in requests.efforts)


def advise(requests: TierRequests, inputs: SizingInput, sequences: int) -> tuple[Advice, ...]:
    """What to set instead, and what that does to the `sequences` a replica carries now."""

    def effect(effort: str | None, budget: Budget, tokens: int) -> str:
        efforts = tuple(_changed(own, effort, budget, tokens) for own in requests.efforts)
        return _effect(replace(requests, efforts=efforts), inputs, sequences)

    largest = max(requests.efforts, key=lambda effort: effort.output_tokens).name
    return tuple(_advices(requests, largest, effect))


def _advices(
    requests: TierRequests, largest: str, effect: Callable[[str | None, Budget, int], str]
) -> Iterator[Advice]:
    for reach in reaches(requests):
        if reach.cut_share > MOST_CUT:
            yield _cuts(reach, effect)
        elif _never(reach, requests.runs) and (reach.told or reach.effort == largest):
            yield _unreached(reach, effect)


def _cuts(reach: Reach, effect: Callable[[str | None, Budget, int], str]) -> Advice:
    cut = reach.lengths[reach.lengths >= reach.tokens]
    censored = reach.budget is not Budget.PROMPT and float((cut == reach.tokens).mean()) >= _CENSORED
    (p99,) = weighted_quantiles(reach.lengths, reach.weights, (0.99,))
    suggested = 2 * reach.tokens if censored else _rounded(p99)
    verb = "is shorter than" if reach.budget is Budget.PROMPT else "cuts"
    what = "of the prompts" if reach.budget is Budget.PROMPT else "of the runs"
    why = (
        "the runs end at the budget, so how long they would be is not known: try that and log again"
        if censored
        else "that leaves 1 %"
    )
    text = (
        f"{_where(reach)} {reach.tokens:,} {verb} {100 * reach.cut_share:.1f} % {what}: set {suggested:,} ({why};"
        f" {effect(reach.effort, reach.budget, suggested)})"
    )
    return _advice(Kind.CUTS_TOO_MUCH, reach, suggested, text)


def _never(reach: Reach, runs: int | None) -> bool:
    """Nothing comes near the budget, and enough was seen to say so."""
    if runs is not None and min(runs, len(reach.lengths)) < _FEWEST_RUNS:
        return False
    return reach.longest < _NEAR * reach.tokens and _enough(reach) < reach.tokens


def _enough(reach: Reach) -> int:
    """A budget with a tenth to spare over the longest run."""
    return _rounded(max(1, reach.longest) * _MARGIN)


def _unreached(reach: Reach, effect: Callable[[str | None, Budget, int], str]) -> Advice:
    suggested = _enough(reach)
    text = (
        f"{_where(reach)} {reach.tokens:,} is never reached (longest seen {reach.longest:,}): {suggested:,} is enough"
        f" ({effect(reach.effort, reach.budget, suggested)})"
    )
    return _advice(Kind.NEVER_REACHED, reach, suggested, text)


def _advice(kind: Kind, reach: Reach, suggested: int, text: str) -> Advice:
    return Advice(
        kind=kind,
        effort=reach.effort,
        budget=reach.budget,
        current=reach.tokens,
        suggested=suggested,
        share=reach.cut_share,
        text=text,
    )


def _where(reach: Reach) -> str:
    return f"effort {reach.effort}: {reach.budget}" if reach.effort else str(reach.budget)


def _rounded(tokens: float) -> int:
    """Up to a multiple of 256, of 64 below 1,024."""
    step = 64 if tokens < 1024 else 256
    return max(step, ceil(tokens / step) * step)


def _changed(own: Effort, effort: str | None, budget: Budget, tokens: int) -> Effort:
    if effort is not None and own.name != effort:
        return own
    match budget:
        case Budget.PROMPT:
            return replace(own, prompt_tokens=tokens)
        case Budget.THINKING:
            return replace(own, thinking_tokens=tokens)
        case Budget.ANSWER:
            return replace(own, answer_tokens=tokens)


def _effect(requests: TierRequests, inputs: SizingInput, sequences: int) -> str:
    """What the sizing says of changed budgets."""
    try:
        answer: SizingPlan | DoesNotFit = plan(replace(inputs, efforts=requests.observed_efforts()))
    except SizingError as error:
        return str(error)
    if isinstance(answer, DoesNotFit):
        return f"does not fit: {answer.what}"
    if answer.max_num_seqs == sequences:
        return f"max_num_seqs stays {sequences:,}, max_model_len {answer.max_model_len:,}"
    return f"max_num_seqs {sequences:,} -> {answer.max_num_seqs:,}, max_model_len {answer.max_model_len:,}"
