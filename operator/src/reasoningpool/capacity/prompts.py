"""Prompts longer than `promptTokens`: nobody cuts them, so their load is real until the engine refuses them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from reasoningpool.requests.distribution import weighted_quantiles
from reasoningpool.requests.tier_requests import TierRequests
from reasoningpool.sizing import SizingInput, SizingPlan, plan


@dataclass(frozen=True, slots=True, kw_only=True)
class LongPrompts:
    """Requests beyond `budget` tokens of prompt and those the engine refuses, as shares (0 to 1).

    `covering` is the length that 99 % of the prompts do not exceed, in tokens.
    """

    budget: int
    over_share: float
    refused_share: float
    covering: int
    max_model_len: int

    def count(self, share: float, runs: int | None) -> str:
        """A share of the requests in words, with their number where it is known."""
        percent = f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"
        return percent if runs is None else f"{round(share * runs):,} requests ({percent})"


def long_prompts(inputs: SizingInput, requests: TierRequests, max_model_len: int) -> LongPrompts | None:
    """What exceeds the tier's prompt budget, None where nothing does.

    The engine refuses a request whose prompt and `max_tokens`, taken as its effort's whole output budget, exceed
    `max_model_len`.
    """
    budgets = np.array([(e.prompt_tokens, e.output_tokens) for e in requests.efforts])[requests.effort]
    over = requests.prompt > budgets[:, 0]
    if not over.any():
        return None
    refused = over & (requests.prompt + inputs.template_overhead_tokens + budgets[:, 1] > max_model_len)
    (covering,) = weighted_quantiles(requests.prompt, requests.weights, (0.99,))
    return LongPrompts(
        budget=int(budgets[:, 0].max()),
        over_share=float(np.average(over, weights=requests.weights)),
        refused_share=float(np.average(refused, weights=requests.weights)),
        covering=int(covering),
        max_model_len=max_model_len,
    )


def with_room_for_prompts(inputs: SizingInput, requests: TierRequests) -> TierRequests:
    """The requests under a prompt budget that holds the longest of them, or the most that the replica can.

    Requests that the engine would refuse count with what it could hold, so that a budget that is too small never makes
    the load look smaller: the answer is the same for every `promptTokens` below the longest prompt.
    """
    longest = int(requests.prompt.max())
    own = max(effort.prompt_tokens for effort in requests.efforts)
    if longest <= own:
        return requests
    context = inputs.max_model_len or inputs.geometry.native_context_tokens
    output = max(effort.output_tokens for effort in requests.efforts)
    most = min(longest, context - output - inputs.template_overhead_tokens)
    if most <= own:
        return requests
    if not _fits(inputs, _raised(requests, most)):
        most = _largest_fitting(inputs, requests, own, most)
    return _raised(requests, most)


def _largest_fitting(inputs: SizingInput, requests: TierRequests, fits: int, too_many: int) -> int:
    """By bisection, in tokens; `fits` does, `too_many` does not."""
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if _fits(inputs, _raised(requests, middle)):
            fits = middle
        else:
            too_many = middle
    return fits


def _fits(inputs: SizingInput, requests: TierRequests) -> bool:
    return isinstance(plan(replace(inputs, efforts=requests.observed_efforts())), SizingPlan)


def _raised(requests: TierRequests, tokens: int) -> TierRequests:
    efforts = tuple(replace(e, prompt_tokens=max(e.prompt_tokens, tokens)) for e in requests.efforts)
    return replace(requests, efforts=efforts)
