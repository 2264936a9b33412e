"""Shorter budgets that fit, as a tier can write them: one `promptTokens`, thinking and answers per effort."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from reasoningpool.sizing.constants import LEAST_THINKING_TOKENS
from reasoningpool.sizing.load.concurrency import largest
from reasoningpool.sizing.types import Change, Effort, SizingInput

_LEAST_ANSWER: Final = 256  # a shorter answer says little

Fits = Callable[[SizingInput], bool]


@dataclass(frozen=True, slots=True)
class ShorterBudgets:
    """A change of budgets, and the smallest share of any budget that it keeps (0 to 1)."""

    change: Change
    kept: float


def shorter_budgets(inputs: SizingInput, fits: Fits) -> Iterator[ShorterBudgets]:
    """One kind of budget cut no further than needed, each kind by itself; all in proportion where no kind is enough.

    A stated `maxModelLen` must hold the budgets, so it is left out with them.
    """
    derived = replace(inputs, max_model_len=None)
    longest = max(effort.prompt_tokens + effort.output_tokens for effort in inputs.efforts)
    prompts = max(effort.prompt_tokens for effort in inputs.efforts)
    least = max(1, inputs.shared_prefix_tokens)  # a shared prefix is a part of the prompt
    found = False
    for cut, at_least, up_to in (
        (_less_thinking, 1, longest - 1),
        (_shorter_prompt, least, prompts - 1),
        (_shorter_answer, 1, longest - 1),
    ):
        shorter = _longest_that_fits(derived, cut, fits, at_least, up_to)
        if shorter is not None:
            found = True
            yield _worded(inputs, shorter)
    if not found:
        scaled = _longest_that_fits(derived, lambda e, n: _scaled(e, n, longest, least), fits, 1, longest - 1)
        if scaled is not None:
            yield _worded(inputs, scaled)


def _longest_that_fits(
    inputs: SizingInput, cut: Callable[[Effort, int], Effort], fits: Fits, at_least: int, up_to: int
) -> SizingInput | None:
    def changed(tokens: int) -> SizingInput:
        return replace(inputs, efforts=tuple(cut(effort, tokens) for effort in inputs.efforts))

    tokens = largest(lambda n: fits(changed(n)), up_to=up_to, at_least=at_least - 1)
    return changed(tokens) if tokens >= at_least else None


def _shorter_prompt(effort: Effort, tokens: int) -> Effort:
    return replace(effort, prompt_tokens=min(effort.prompt_tokens, tokens))


def _less_thinking(effort: Effort, length: int) -> Effort:
    room = max(LEAST_THINKING_TOKENS, length - effort.prompt_tokens - effort.answer_tokens)
    return replace(effort, thinking_tokens=min(effort.thinking_tokens, room))


def _shorter_answer(effort: Effort, length: int) -> Effort:
    room = max(_LEAST_ANSWER, length - effort.prompt_tokens - effort.thinking_tokens)
    return replace(effort, answer_tokens=min(effort.answer_tokens, room))


def _scaled(effort: Effort, length: int, longest: int, least_prompt: int) -> Effort:
    """Every budget times `length / longest`; none that was there is cut to nothing."""
    return replace(
        effort,
        prompt_tokens=max(min(effort.prompt_tokens, least_prompt), effort.prompt_tokens * length // longest),
        thinking_tokens=max(min(effort.thinking_tokens, 1), effort.thinking_tokens * length // longest),
        answer_tokens=max(min(effort.answer_tokens, 1), effort.answer_tokens * length // longest),
    )


def _worded(before: SizingInput, after: SizingInput) -> ShorterBudgets:
    pairs = tuple(zip(before.efforts, after.efforts, strict=True))
    prompt, shorter = (max(effort.prompt_tokens for effort in inputs.efforts) for inputs in (before, after))
    parts = [f"promptTokens to {shorter:,} (now {prompt:,})"] if shorter < prompt else []
    for old, new in pairs:
        for name, was, now in (
            ("thinkingTokens", old.thinking_tokens, new.thinking_tokens),
            ("answerTokens", old.answer_tokens, new.answer_tokens),
        ):
            if now < was:
                parts.append(f"{name} of effort {old.name!r} to {now:,} (now {was:,})")
    kept = min(shorter / prompt, *(new.output_tokens / old.output_tokens for old, new in pairs))
    lead = "" if before.max_model_len is None else "leave maxModelLen out and "
    return ShorterBudgets(Change(text=f"{lead}shorten the budgets: {', '.join(parts)}", inputs=after), kept)
