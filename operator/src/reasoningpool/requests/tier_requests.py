"""The requests of one tier: which effort each has, what of its output is thinking, and what the budgets cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from reasoningpool.requests.distribution import percentiles
from reasoningpool.requests.errors import CapacityError
from reasoningpool.requests.log import Names, RequestLog
from reasoningpool.sizing.types import Effort

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reasoningpool.requests.log import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class MixOptions:
    """What the caller states about the mix. Shares are on any scale; None: the tier's own."""

    shares: Mapping[str, float] | None = None
    thinking_share: float | None = None  # of the output, 0 to 1, where a log does not tell thinking from answer
    thinking_enforced: bool = True  # whether the engine ends thinking at its budget


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRequests:
    """Requests of a tier, one array entry each; `prompt`, `thinking` and `answer` are as they were before any budget.

    `effort` indexes `efforts`. `told_efforts` and `told_thinking` say whether the source told them apart.
    """

    efforts: tuple[Effort, ...]
    effort: NDArray[np.intp]
    prompt: Ints
    thinking: Ints
    answer: Ints
    weights: Floats | None
    seconds: Floats | None
    runs: int | None
    told_efforts: bool
    told_thinking: bool
    told_prompts: bool
    thinking_enforced: bool
    assumed: frozenset[str]  # efforts of which nothing is known: every run has its whole output budget
    notes: tuple[str, ...]

    @property
    def served_prompt(self) -> Ints:
        """Prompts as the engine takes them: at most the tier's."""
        most: Ints = np.array([e.prompt_tokens for e in self.efforts])[self.effort]
        served: Ints = np.minimum(self.prompt, most)
        return served

    @property
    def served(self) -> tuple[Ints, Ints]:
        """Thinking and answers as the budgets cut them; at least one token in all."""
        budgets = np.array([(e.thinking_tokens, e.answer_tokens) for e in self.efforts])[self.effort]
        if self.thinking_enforced:
            thinking = np.minimum(self.thinking, budgets[:, 0])
            answer = np.minimum(self.answer, budgets[:, 1])
        else:  # only both together end a run
            total = budgets.sum(axis=1)
            thinking = np.minimum(self.thinking, total)
            answer = np.minimum(self.answer, total - thinking)
        return thinking, np.where(thinking + answer < 1, 1, answer)

    def share(self, index: int) -> float:
        """Share of the requests that have this effort, 0 to 1."""
        mine = self.effort == index
        if self.weights is None:
            return float(mine.mean())
        return float(self.weights[mine].sum() / self.weights.sum())

    def observed_efforts(self) -> tuple[Effort, ...]:
        """The tier's efforts with the lengths and shares seen here: what a `tokenDistribution` of them would give.

        An effort nobody used keeps its budgets, since they decide max_model_len, and next to no share.
        """
        thinking, answer = self.served
        output, prompt = thinking + answer, self.served_prompt
        found = []
        for index, effort in enumerate(self.efforts):
            mine = self.effort == index
            if not mine.any():
                found.append(replace(effort, share=1e-9, prompt_distribution=None, output_distribution=None))
                continue
            weights = None if self.weights is None else self.weights[mine]
            found.append(
                replace(
                    effort,
                    share=100 * self.share(index),
                    output_distribution=None if effort.name in self.assumed else percentiles(output[mine], weights),
                    prompt_distribution=percentiles(prompt[mine], weights) if self.told_prompts else None,
                )
            )
        return tuple(found)


def tier_requests(log: RequestLog, tier: str, efforts: tuple[Effort, ...], options: MixOptions) -> TierRequests:
    """The log's requests as this tier would serve them.

    Raises:
        CapacityError: the log holds none of this tier, or a stated share names no effort of it.
    """
    notes: list[str] = list(log.notes)
    log = _of_tier(log, tier, notes)
    log, effort, told = _with_efforts(log, tier, efforts, options, notes)
    budgets = np.array([(e.thinking_tokens, e.answer_tokens) for e in efforts])[effort]
    if log.thinking is not None:
        if options.thinking_share is not None:
            raise CapacityError("already tells thinking from answers; drop --thinking-share")
        thinking = log.thinking
    else:
        share = budgets[:, 0] / budgets.sum(axis=1)
        if options.thinking_share is not None:
            share = np.where(budgets[:, 0] > 0, options.thinking_share, 0.0)
        thinking = np.rint(log.output * share).astype(np.int64)
        if bool((budgets[:, 0] > 0).any()):
            how = (
                "in the proportion of the budgets"
                if options.thinking_share is None
                else f"at {100 * options.thinking_share:g} % (--thinking-share)"
            )
            notes.append(f"thinking and answers are not recorded separately: output is split {how}")
    prompts = log.prompt
    if prompts is None:
        prompts = np.array([e.prompt_tokens for e in efforts])[effort]
        notes.append("no prompt lengths: every prompt is taken at promptTokens")
    return TierRequests(
        efforts=efforts,
        effort=effort,
        prompt=prompts,
        thinking=thinking,
        answer=log.output - thinking,
        weights=log.weights,
        seconds=log.seconds,
        runs=log.runs,
        told_efforts=told,
        told_thinking=log.thinking is not None,
        told_prompts=log.prompt is not None,
        thinking_enforced=options.thinking_enforced,
        assumed=log.assumed,
        notes=tuple(notes),
    )


def tier_share(log: RequestLog, tier: str) -> float:
    """Share of the log's requests that are this tier's, 1 where the log does not tell tiers apart."""
    if log.tier is None:
        return 1.0
    return float(_named(log.tier, tier).mean())


def _of_tier(log: RequestLog, tier: str, notes: list[str]) -> RequestLog:
    if log.tier is None:
        return log
    mine = _named(log.tier, tier)
    if not mine.any():
        raise CapacityError(f"holds no request of tier {tier!r}; its tiers are {_listed(log.tier.values)}")
    if not mine.all():
        notes.append(f"{int((~mine).sum()):,} requests of other tiers are left out")
    return log.rows(mine)


def _named(column: Names, name: str) -> NDArray[np.bool_]:
    codes = [code for code, value in enumerate(column.values) if value == name.lower()]
    return np.isin(column.codes, codes)


def _with_efforts(
    log: RequestLog, tier: str, efforts: tuple[Effort, ...], options: MixOptions, notes: list[str]
) -> tuple[RequestLog, NDArray[np.intp], bool]:
    unknown = sorted(set(options.shares or ()) - {effort.name for effort in efforts})
    if unknown:
        raise CapacityError(f"tier {tier} has no effort {unknown[0]!r}; it has {_listed([e.name for e in efforts])}")
    if log.effort is not None:
        if options.shares and log.weights is None:
            raise CapacityError("already has an effort column; drop --effort-share")
        return _by_name(log, log.effort, tier, efforts, notes)
    if len(efforts) == 1:
        return log, np.zeros(len(log), dtype=np.intp), True
    shares = np.array(
        [(options.shares or {}).get(e.name, 0.0 if options.shares else e.share) for e in efforts], dtype=np.float64
    )
    if shares.sum() <= 0:
        raise CapacityError("the shares of the efforts are all 0")
    words = ", ".join(f"{e.name} {100 * s / shares.sum():.0f} %" for e, s in zip(efforts, shares, strict=True))
    notes.append(f"efforts are not recorded: the shortest runs are given to the smallest budgets ({words})")
    return log, _by_length(log, efforts, shares / shares.sum()), False


def _by_name(
    log: RequestLog, column: Names, tier: str, efforts: tuple[Effort, ...], notes: list[str]
) -> tuple[RequestLog, NDArray[np.intp], bool]:
    index_of = {effort.name: index for index, effort in enumerate(efforts)}
    table = np.array([index_of.get(value, -1) for value in column.values], dtype=np.intp)
    effort = table[column.codes]
    known = effort >= 0
    if not known.any():
        own = _listed([e.name for e in efforts])
        raise CapacityError(f"holds no request of an effort of tier {tier} ({own}); it has {_listed(column.values)}")
    if not known.all():
        others = _listed([value for value in column.values if value not in index_of])
        notes.append(f"{int((~known).sum()):,} requests of efforts the tier does not define ({others}) are left out")
    return log.rows(known), effort[known], True


def _by_length(log: RequestLog, efforts: tuple[Effort, ...], shares: Floats) -> NDArray[np.intp]:
    """Runs in order of length to efforts in order of budget, by share of requests."""
    ranked = sorted(range(len(efforts)), key=lambda index: (efforts[index].output_tokens, index))
    order = np.argsort(log.output, kind="stable")
    weights = np.ones(len(log)) if log.weights is None else log.weights[order]
    middle = np.cumsum(weights) - weights / 2
    bounds = np.cumsum(shares[ranked]) * weights.sum()
    places = np.minimum(np.searchsorted(bounds, middle, side="right"), len(ranked) - 1)
    result = np.empty(len(log), dtype=np.intp)
    result[order] = np.array(ranked, dtype=np.intp)[places]
    return result


def _listed(names: tuple[str, ...] | list[str]) -> str:
    shown = ", ".join(repr(name) if name else "(none)" for name in names[:8])
    return shown + (", ..." if len(names) > 8 else "")
