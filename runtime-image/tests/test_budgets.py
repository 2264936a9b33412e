import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoningpool_runtime.budgets import LEAST_THINKING_TOKENS, SCALE, decide
from reasoningpool_runtime.contract import Effort, OverBudget, RuntimeConfig, Thinking
from reasoningpool_runtime.errors import RefusalError
from reasoningpool_runtime.wishes import UNLIMITED, Wishes

LOW = Effort(name="low", thinking_tokens=0, answer_tokens=512)
MEDIUM = Effort(name="medium", thinking_tokens=1024, answer_tokens=768)
HIGH = Effort(name="high", thinking_tokens=4096, answer_tokens=1024)


def tier(*efforts: Effort, policy: OverBudget = OverBudget.CLAMP, **thinking: object) -> RuntimeConfig:
    efforts = efforts or (LOW, MEDIUM, HIGH)
    default = "medium" if MEDIUM in efforts else efforts[0].name
    return RuntimeConfig(
        tier="t", efforts=efforts, default_effort=default, over_budget=policy, thinking=Thinking(**thinking)
    )


def test_a_request_without_wishes_gets_the_default_effort() -> None:
    budget = decide(tier(), Wishes())
    assert (budget.effort, budget.thinking_tokens, budget.max_tokens) == (MEDIUM, 1024, 1792)


@pytest.mark.parametrize(
    ("name", "effort"),
    [
        ("none", LOW),
        ("minimal", LOW),
        ("low", LOW),
        ("medium", MEDIUM),
        ("high", HIGH),
        ("xhigh", HIGH),
        ("max", HIGH),
    ],
)
def test_names_that_the_tier_lacks_mean_the_next_lower_effort(name: str, effort: Effort) -> None:
    budget = decide(tier(), Wishes(effort=name))
    assert budget.effort is effort
    assert budget.clamped == (("reasoning_effort",) if name in {"xhigh", "max"} else ())


def test_unknown_names_are_refused_with_the_names_there_are() -> None:
    with pytest.raises(RefusalError, match="it has low, medium, high") as caught:
        decide(tier(), Wishes(effort="hihg"))
    assert caught.value.param == "reasoning_effort"


@pytest.mark.parametrize("wanted", [5000, UNLIMITED])
def test_more_thinking_than_allowed_is_clamped_or_refused(wanted: int) -> None:
    budget = decide(tier(), Wishes(effort="high", thinking_tokens=wanted))
    assert (budget.thinking_tokens, budget.clamped) == (4096, ("thinking_token_budget",))
    with pytest.raises(RefusalError, match="allows 4096"):
        decide(tier(policy=OverBudget.REFUSE), Wishes(effort="high", thinking_tokens=wanted))


def test_more_tokens_than_allowed_are_clamped_or_refused() -> None:
    budget = decide(tier(), Wishes(max_tokens=100_000))
    assert (budget.max_tokens, budget.clamped) == (1792, ("max_tokens",))
    with pytest.raises(RefusalError, match="allows 1792"):
        decide(tier(policy=OverBudget.REFUSE), Wishes(max_tokens=100_000))


def test_a_budget_alone_picks_the_smallest_effort_that_holds_it() -> None:
    assert decide(tier(), Wishes(thinking_tokens=1500)).effort is HIGH
    assert decide(tier(), Wishes(thinking_tokens=1000)).effort is MEDIUM
    assert decide(tier(), Wishes(thinking_tokens=0)).effort is LOW


def test_thinking_required_picks_between_thinking_and_silent_efforts() -> None:
    assert decide(tier(), Wishes(thinking_required=False)).effort is LOW
    assert decide(tier(LOW, HIGH), Wishes(thinking_required=True)).effort is HIGH
    without = decide(tier(MEDIUM, HIGH), Wishes(thinking_required=False))
    assert (without.effort, without.thinking_tokens, without.max_tokens) == (MEDIUM, 0, 768)


def test_a_small_total_leaves_an_answer() -> None:
    budget = decide(tier(), Wishes(effort="high", max_tokens=500))
    assert (budget.thinking_tokens, budget.answer_tokens) == (400, 100)
    assert decide(tier(), Wishes(effort="high", max_tokens=6)).thinking_tokens == 0


def test_a_model_that_never_thinks_gets_no_thinking() -> None:
    assert decide(tier(LOW, supported=False), Wishes(effort="none", thinking_tokens=500)).thinking_tokens == 0


EFFORTS = st.lists(
    st.builds(
        lambda name, thinking, answer: Effort(name=name, thinking_tokens=thinking, answer_tokens=answer),
        st.sampled_from([*SCALE, "deep", "quick"]),
        st.just(0) | st.integers(1, 50_000),
        st.integers(1, 50_000),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda effort: effort.name,
)
WISHES = st.builds(
    Wishes,
    effort=st.none() | st.sampled_from(SCALE),
    thinking_tokens=st.none() | st.integers(-1, 60_000),
    max_tokens=st.none() | st.integers(1, 100_000),
    thinking_required=st.none() | st.booleans(),
)


@given(efforts=EFFORTS, wishes=WISHES)
def test_nobody_gets_more_than_the_tier_allows_or_than_was_asked_for(efforts: list[Effort], wishes: Wishes) -> None:
    config = tier(*efforts)
    budget = decide(config, wishes)
    assert budget.effort in efforts
    assert 0 <= budget.thinking_tokens <= budget.effort.thinking_tokens
    assert 1 <= budget.max_tokens <= budget.effort.total_tokens
    assert budget.answer_tokens >= 1
    if wishes.max_tokens is not None:
        assert budget.max_tokens <= wishes.max_tokens
    if wishes.thinking_tokens not in {None, UNLIMITED}:
        assert budget.thinking_tokens <= wishes.thinking_tokens
    if wishes.thinking_required is False or (wishes.effort == "none" and budget.effort.name != "none"):
        assert budget.thinking_tokens == 0
    assert budget.thinking_tokens == 0 or budget.thinking_tokens >= LEAST_THINKING_TOKENS


@given(efforts=EFFORTS, wishes=WISHES)
def test_what_is_applied_asks_for_the_same_again(efforts: list[Effort], wishes: Wishes) -> None:
    config = tier(*efforts)
    first = decide(config, wishes)
    if not first.thinks:
        return  # nothing to ask for again by tokens
    again = decide(
        config, Wishes(effort=first.effort.name, thinking_tokens=first.thinking_tokens, max_tokens=first.max_tokens)
    )
    assert (again.effort, again.max_tokens, again.clamped) == (first.effort, first.max_tokens, ())
