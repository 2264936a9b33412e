"""Known mistakes are warned of where they are made, and only there."""

from __future__ import annotations

from typing import Any

import pytest

from reasoningpool.api.resource import parse_pool
from reasoningpool.capacity.mistakes import pool_mistakes, tier_mistakes
from reasoningpool.resolution.resolve import ResolutionSettings, resolve
from reasoningpool.resolution.types import EffectiveTier
from support.pools import chat_tier, pool, tier


def tiers(body: dict[str, Any]) -> tuple[EffectiveTier, ...]:
    return resolve(parse_pool(body), ResolutionSettings()).tiers


@pytest.mark.parametrize(
    ("image", "method", "warned"),
    [
        ("vllm/vllm-openai:v0.28.0", "MTP", True),
        ("vllm/vllm-openai:latest", "MTP", True),
        ("vllm/vllm-openai:v0.33.0", "MTP", False),
        ("vllm/vllm-openai:v0.28.0", "NGram", False),
    ],
)
def test_drafts_with_thinking_budgets_on_engines_that_do_not_enforce_them(image, method, warned) -> None:
    body = pool(engine={"image": image}, tiers=[tier(speculative={"method": method, "tokens": 1})])
    (found,) = tiers(body)
    assert any("do not enforce the budget" in str(text) for text in tier_mistakes(found)) is warned


def test_drafts_without_thinking_are_no_mistake() -> None:
    body = pool(
        engine={"image": "vllm/vllm-openai:v0.28.0"}, tiers=[chat_tier(speculative={"method": "MTP", "tokens": 1})]
    )
    assert tier_mistakes(tiers(body)[0]) == ()


def test_one_budget_for_tiers_that_differ() -> None:
    same = [{"name": "none", "thinkingTokens": 0, "answerTokens": 5120}]
    body = pool(tiers=[tier(), chat_tier(promptTokens=4096, efforts=same)])
    (found,) = pool_mistakes(tiers(body))
    assert "tiers reasoning and chat differ in workload or model but have one budget (4,096 prompt and 5,120" in str(
        found
    )
    assert found.tier is None
    assert pool_mistakes(tiers(pool(tiers=[tier(), chat_tier()]))) == ()


def test_two_tiers_of_one_kind_may_share_a_budget() -> None:
    assert pool_mistakes(tiers(pool(tiers=[tier("a"), tier("b")]))) == ()


def test_efforts_with_one_budget() -> None:
    efforts = [{"name": name, "thinkingTokens": 2048, "answerTokens": 512} for name in ("low", "high")]
    (found,) = tier_mistakes(tiers(pool(tiers=[tier(efforts=efforts)]))[0])
    assert "efforts low, high of tier reasoning have the same budgets" in str(found)
    assert (found.tier, found.path) == ("reasoning", "spec.tiers[0].efforts")
