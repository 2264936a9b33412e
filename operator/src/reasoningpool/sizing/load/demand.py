"""What requests look like: their footprints, and the distribution of tokens they hold while in flight.

A request with prompt p and output o holds p tokens at its start and p + o at its end. Requests seen in
flight are length-biased (weight o) and at a uniform phase of their growth, so the tokens held are a mixture
of uniform distributions on [p, p + o] with weights `share * o`.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

import numpy as np

from reasoningpool.sizing.observed import ObservedTokens
from reasoningpool.sizing.types import Effort, SizingInput, TokenQuantiles

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_Z90: Final = NormalDist().inv_cdf(0.9)
_Z99: Final = NormalDist().inv_cdf(0.99)
# Points of a distribution up to the 90th percentile and in each decade of the tail beyond it: long runs are few
# and weigh most.
_OUTPUT_POINTS: Final = (20, 10, 6, 4, 2)
_PROMPT_POINTS: Final = (5, 2, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffortTokens:
    """Budgets of one effort with overheads, cut at an explicit maximum length."""

    name: str
    share: float
    prompt: int  # with the chat template's tokens
    output: int
    lookahead: int

    @property
    def footprint(self) -> int:
        """The most tokens a request of this effort has KV for."""
        return self.prompt + self.output + self.lookahead


def effort_tokens(inputs: SizingInput, max_len: int | None) -> tuple[EffortTokens, ...]:
    """Budgets as the engine enforces them."""
    out = []
    for effort in inputs.efforts:
        prompt = effort.prompt_tokens + inputs.template_overhead_tokens
        output = effort.output_tokens
        if max_len is not None:
            prompt = min(prompt, max_len - 1)
            output = max(1, min(output, max_len - prompt))
        out.append(
            EffortTokens(
                name=effort.name, share=effort.share, prompt=prompt, output=output, lookahead=inputs.speculative_tokens
            )
        )
    return tuple(out)


@dataclass(frozen=True, slots=True)
class ResidentTokens:
    """Mixture of uniform distributions on [start, start + length], in tokens; both weights sum to 1."""

    weights: Floats  # of requests in flight
    requests: Floats  # of requests
    starts: Floats
    lengths: Floats

    @property
    def mean(self) -> float:
        """`E[o (p + o/2)] / E[o]`. One effort with p = 1000 and o = 500: 1,250."""
        return float(np.dot(self.weights, self.starts + self.lengths / 2))

    @property
    def mean_output(self) -> float:
        """`E[o]` over requests, not length-biased."""
        return float(np.dot(self.requests, self.lengths))

    def mean_prompt_beyond(self, shared_tokens: int) -> float:
        """`E[max(0, p - shared)]` over requests, template and lookahead included."""
        return float(np.dot(self.requests, np.maximum(self.starts - shared_tokens, 0)))

    @property
    def longest(self) -> float:
        """The largest value a request can reach."""
        return float(np.max(self.starts + self.lengths))


def resident_tokens(
    inputs: SizingInput, tokens: tuple[EffortTokens, ...], *, batched_tokens: int, shared_tokens: int = 0
) -> ResidentTokens:
    """The tokens one request in flight holds, over the mix of efforts.

    A request is in flight for a step per output token, the first of which ends its prefill, and for
    `(p - shared) / batched_tokens` more, since a prompt seldom fits the rest of one step's budget.
    """
    points = [
        _effort_points(effort, own, inputs.template_overhead_tokens)
        for effort, own in zip(inputs.efforts, tokens, strict=True)
    ]
    requests, starts, lengths = (np.concatenate(arrays) for arrays in zip(*points, strict=True))
    weights = requests * (lengths + np.maximum(starts - shared_tokens, 0) / batched_tokens)
    return ResidentTokens(weights / weights.sum(), requests / requests.sum(), starts, lengths)


def _effort_points(effort: Effort, own: EffortTokens, overhead: int) -> tuple[Floats, Floats, Floats]:
    """Requests, tokens at their start and tokens generated, for the classes of one effort."""
    if effort.observed is not None:
        chance, prompt, output = _observed_points(effort.observed, own, overhead)
        return own.share * chance, prompt + own.lookahead, output
    prompt_p, prompt = _points(effort.prompt_distribution, own.prompt, overhead, _PROMPT_POINTS)
    output_p, output = _points(effort.output_distribution, own.output, 0, _OUTPUT_POINTS)
    chance = np.multiply.outer(prompt_p, output_p).ravel()
    return own.share * chance, np.repeat(prompt, len(output)) + own.lookahead, np.tile(output, len(prompt))


def _observed_points(observed: ObservedTokens, own: EffortTokens, overhead: int) -> tuple[Floats, Floats, Floats]:
    """Chances, prompts and outputs of the classes, cut at the budgets."""
    requests, prompts, outputs = (
        np.array(values) for values in (observed.requests, observed.prompts, observed.outputs)
    )
    return requests / requests.sum(), np.clip(prompts + overhead, 1, own.prompt), np.clip(outputs, 1, own.output)


def _points(
    quantiles: TokenQuantiles | None, budget: int, overhead: int, counts: tuple[int, ...]
) -> tuple[Floats, Floats]:
    """Probabilities and values of a distribution cut at its budget; the budget itself when nothing is known."""
    if quantiles is None:
        return np.ones(1), np.array([float(budget)])
    steps = [0.9 * 0.1**decade / count for decade, count in enumerate(counts) for _ in range(count)]
    edges = np.concatenate([np.zeros(1), np.cumsum(steps)])
    edges /= edges[-1]
    middles = (edges[:-1] + edges[1:]) / 2
    normal = NormalDist()
    z = np.array([normal.inv_cdf(float(q)) for q in middles])
    values = np.exp(log_tokens(quantiles, z)) + overhead
    return np.diff(edges), np.clip(values, 1, budget)


def log_tokens(quantiles: TokenQuantiles, z: Floats) -> Floats:
    """Natural logarithm of the tokens at normal scores z (any shape, the result has the same).

    Lognormal through all three quantiles in two pieces: linear in z up to the 90th percentile, and above it.
    """
    p50, p90, p99 = (float(np.log(max(1, q))) for q in (quantiles.p50, quantiles.p90, quantiles.p99))
    lower, upper = (p90 - p50) / _Z90, (p99 - p90) / (_Z99 - _Z90)
    result: Floats = np.where(z <= _Z90, p50 + lower * z, p90 + upper * (z - _Z90))
    return result
