"""Which budget a request gets. Pure.

vLLM counts a thinking budget in tokens after the start tag, so that of `total` tokens the rest is the answer's.
"""

from __future__ import annotations

from dataclasses import dataclass

from reasoningpool_runtime.contract import Effort, OverBudget, RuntimeConfig
from reasoningpool_runtime.errors import RefusalError
from reasoningpool_runtime.wishes import UNLIMITED, Wishes

# The names of OpenAI's API and vLLM, from least to most thinking.
SCALE = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

# A thought of fewer tokens is cut in its first words: such a request does not think at all.
LEAST_THINKING_TOKENS = 8


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What is applied. `clamped` names the fields that asked for more than the tier allows."""

    effort: Effort
    thinking_tokens: int
    max_tokens: int
    clamped: tuple[str, ...] = ()

    @property
    def thinks(self) -> bool:
        return self.thinking_tokens > 0

    @property
    def answer_tokens(self) -> int:
        """What is left for the answer when the thinking takes all of its budget."""
        return self.max_tokens - self.thinking_tokens


def decide(config: RuntimeConfig, wishes: Wishes, *, default_max_tokens: int | None = None) -> Budget:
    """The budget of a request: never more than its effort's, less where the client asks for less.

    Where the total is too small for both, thinking and answer shrink in proportion, so that an answer is left.
    `default_max_tokens` is the API's own total when the client names none.

    Raises:
        RefusalError: no such effort, or too much is asked for and the tier refuses that (400).
    """
    clamped: list[str] = []
    effort = _pick_effort(config, wishes, clamped)
    thinking = _thinking_tokens(config, effort, wishes, clamped)
    total = thinking + effort.answer_tokens
    if wishes.max_tokens is not None:
        if wishes.max_tokens > effort.total_tokens:
            _over(
                config,
                clamped,
                "max_tokens",
                wanted=wishes.max_tokens,
                allowed=effort.total_tokens,
                effort=effort,
            )
        total = min(wishes.max_tokens, effort.total_tokens)
    elif default_max_tokens is not None:
        total = min(default_max_tokens, total)
    return Budget(
        effort=effort,
        thinking_tokens=_leaving_an_answer(thinking, total, effort),
        max_tokens=total,
        clamped=tuple(clamped),
    )


def _leaving_an_answer(thinking: int, total: int, effort: Effort) -> int:
    if thinking + effort.answer_tokens > total:
        thinking = min(thinking, total * thinking // (thinking + effort.answer_tokens))
    return thinking if thinking >= LEAST_THINKING_TOKENS else 0


def _thinking_tokens(config: RuntimeConfig, effort: Effort, wishes: Wishes, clamped: list[str]) -> int:
    if not config.thinking.supported or wishes.thinking_required is False:
        return 0
    # "none" of a tier that always thinks is answered by its shortest effort, without thinking.
    if wishes.effort == "none" and effort.name != "none":
        return 0
    wanted = wishes.thinking_tokens
    if wanted is None:
        return effort.thinking_tokens
    if wanted == UNLIMITED or wanted > effort.thinking_tokens:
        _over(
            config,
            clamped,
            "thinking_token_budget",
            wanted=wanted,
            allowed=effort.thinking_tokens,
            effort=effort,
        )
        return effort.thinking_tokens
    return wanted


def _over(config: RuntimeConfig, clamped: list[str], field: str, *, wanted: int, effort: Effort, allowed: int) -> None:
    if config.over_budget is OverBudget.REFUSE:
        asked = "unlimited tokens" if wanted == UNLIMITED else f"{wanted} tokens"
        raise RefusalError(
            400,
            "over_budget",
            f"{field} asks for {asked}; effort {effort.name!r} of tier {config.tier!r} allows {allowed}. "
            f"Ask for at most {allowed}, or choose another effort ({_names(config)}).",
            param=field,
        )
    clamped.append(field)


def _pick_effort(config: RuntimeConfig, wishes: Wishes, clamped: list[str]) -> Effort:
    if wishes.effort is not None:
        effort = _named(config, wishes.effort, clamped)
    elif wishes.thinking_required is None and wishes.thinking_tokens not in {None, UNLIMITED}:
        effort = _by_tokens(config, wishes.thinking_tokens or 0)
    else:
        effort = config.effort(config.default_effort) or config.efforts[0]
    if wishes.thinking_required is True and not effort.thinking_tokens:
        return min(_thinking(config), key=lambda one: one.thinking_tokens, default=effort)
    if wishes.thinking_required is False and effort.thinking_tokens:
        return max(_silent(config), key=lambda one: one.answer_tokens, default=effort)
    return effort


def _named(config: RuntimeConfig, name: str, clamped: list[str]) -> Effort:
    if (exact := config.effort(name)) is not None:
        return exact
    if name not in SCALE or (config.over_budget is OverBudget.REFUSE and name != "none"):
        raise RefusalError(
            400,
            "unknown_effort",
            f"Tier {config.tier!r} has no effort {name[:40]!r}; it has {_names(config)}.",
            param="reasoning_effort",
        )
    if name == "none":
        return max(_silent(config), key=lambda one: one.answer_tokens, default=_least(config))
    lower = [one for one in config.efforts if one.name in SCALE and SCALE.index(one.name) <= SCALE.index(name)]
    if not lower:
        return _least(config)
    clamped.append("reasoning_effort")
    return max(lower, key=lambda one: SCALE.index(one.name))


def _by_tokens(config: RuntimeConfig, tokens: int) -> Effort:
    """The smallest effort that thinks so long, else the one that thinks longest."""
    enough = [one for one in config.efforts if one.thinking_tokens >= tokens]
    if enough:
        return min(enough, key=lambda one: one.thinking_tokens)
    return max(config.efforts, key=lambda one: one.thinking_tokens)


def _thinking(config: RuntimeConfig) -> list[Effort]:
    return [one for one in config.efforts if one.thinking_tokens]


def _silent(config: RuntimeConfig) -> list[Effort]:
    return [one for one in config.efforts if not one.thinking_tokens]


def _least(config: RuntimeConfig) -> Effort:
    return min(config.efforts, key=lambda one: one.thinking_tokens)


def _names(config: RuntimeConfig) -> str:
    return ", ".join(one.name for one in config.efforts)
