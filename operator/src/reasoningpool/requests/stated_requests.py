"""Requests from what a user or a spec states, where there is no log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from reasoningpool.requests.distribution import POINTS, lengths
from reasoningpool.requests.errors import CapacityError
from reasoningpool.requests.log import Names, RequestLog
from reasoningpool.sizing.types import Effort, TokenQuantiles

if TYPE_CHECKING:
    from reasoningpool.requests.log import Ints

# The key of percentiles that are of all efforts together.
ALL: None = None


def stated_requests(
    efforts: tuple[Effort, ...],
    output: Mapping[str | None, TokenQuantiles],
    prompt: Mapping[str | None, TokenQuantiles],
    shares: Mapping[str, float] | None,
) -> RequestLog:
    """Requests with the stated percentiles by effort (`None`: of all together).

    What is stated for no effort comes from the tier: its `tokenDistribution`, else its budgets. Prompts and outputs
    are independent.

    Raises:
        CapacityError: percentiles or shares name no effort of the tier.
    """
    names = {effort.name for effort in efforts}
    for name in (*output, *prompt, *(shares or {})):
        if name is not None and name not in names:
            raise CapacityError(f"the tier has no effort {name!r}; it has {', '.join(sorted(names))}")
    if ALL in output and len(output) > 1:
        raise CapacityError("state one distribution for all efforts or one for each, not both")
    if ALL in output:
        drawn = lengths(output[ALL], seed=3)
        told = prompt.get(ALL)
        if told is None and prompt:
            raise CapacityError("a prompt distribution of one effort needs an output distribution of that effort")
        return RequestLog(
            output=drawn,
            prompt=None if told is None else lengths(told, seed=2),
            weights=np.ones(len(drawn)),
            notes=("lengths are lognormal through the stated percentiles",),
        )
    return _by_effort(efforts, output, prompt, shares)


def _by_effort(
    efforts: tuple[Effort, ...],
    output: Mapping[str | None, TokenQuantiles],
    prompt: Mapping[str | None, TokenQuantiles],
    shares: Mapping[str, float] | None,
) -> RequestLog:
    outputs, prompts, weights = [], [], []
    any_prompt = False
    for place, effort in enumerate(efforts):
        of_output = output.get(effort.name) or effort.output_distribution
        of_prompt = prompt.get(effort.name) or prompt.get(ALL) or effort.prompt_distribution
        any_prompt = any_prompt or of_prompt is not None
        outputs.append(_drawn(of_output, effort.output_tokens, seed=10 + place))
        prompts.append(_drawn(of_prompt, effort.prompt_tokens, seed=50 + place))
        share = shares.get(effort.name, 0.0) if shares else effort.share
        weights.append(np.full(POINTS, share / POINTS))
    if not sum(float(part.sum()) for part in weights) > 0:
        raise CapacityError("the shares of the efforts are all 0")
    codes = np.repeat(np.arange(len(efforts), dtype=np.int32), POINTS)
    kept = np.concatenate(weights) > 0
    whole = RequestLog(
        output=np.concatenate(outputs),
        prompt=np.concatenate(prompts) if any_prompt else None,
        effort=Names(values=tuple(effort.name for effort in efforts), codes=codes),
        weights=np.concatenate(weights),
        assumed=frozenset(_unknown(efforts, output)),
        notes=_notes(efforts, output),
    )
    return whole.rows(kept)


def _drawn(quantiles: TokenQuantiles | None, budget: int, *, seed: int) -> Ints:
    return np.full(POINTS, budget, dtype=np.int32) if quantiles is None else lengths(quantiles, seed=seed)


def _unknown(efforts: tuple[Effort, ...], output: Mapping[str | None, TokenQuantiles]) -> list[str]:
    """Efforts without a distribution."""
    return [e.name for e in efforts if e.name not in output and e.output_distribution is None]


def _notes(efforts: tuple[Effort, ...], output: Mapping[str | None, TokenQuantiles]) -> tuple[str, ...]:
    budgets = _unknown(efforts, output)
    told = ("lengths are lognormal through the stated percentiles",) if len(budgets) < len(efforts) else ()
    if not budgets:
        return told
    return (*told, f"every run of effort {', '.join(budgets)} uses its whole budget: no distribution is known")
