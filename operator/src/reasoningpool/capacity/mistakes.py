"""Known mistakes of pools that serve reasoning, beyond what resolution refuses or warns of itself.

A budget above maxModelLen and an FP8 cache on a GPU that cannot are findings of `resolution`; a budget above the
model's native context does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from reasoningpool.api.conditions import Reason
from reasoningpool.api.findings import Finding, warning
from reasoningpool.api.spec_tier import SpeculativeMethod
from reasoningpool.resolution.types import EffectiveTier

# Model Runner V2 did not apply thinking budgets when drafting (vllm-project/vllm#39573, #54906, seen up to 0.28);
# the rejection sampler of 0.32 does in source, unproven on a GPU. N-gram drafts on V1 kept the budget exactly.
BUDGET_WITH_DRAFTS_SINCE: Final = (0, 32, 0)


def tier_mistakes(tier: EffectiveTier) -> tuple[Finding, ...]:
    """What a plan of this tier should warn of."""
    return (*_speculative(tier), *_same_efforts(tier))


def pool_mistakes(tiers: Sequence[EffectiveTier]) -> tuple[Finding, ...]:
    """One budget for tiers that differ: the smaller workload is sized for the larger one's runs."""
    found = []
    seen: dict[tuple[int, int], EffectiveTier] = {}
    for tier in tiers:
        efforts = tier.sizing_input.efforts
        prompt, output = max(e.prompt_tokens for e in efforts), max(e.output_tokens for e in efforts)
        other = seen.setdefault((prompt, output), tier)
        if other is tier or (other.workload, other.model.id) == (tier.workload, tier.model.id):
            continue
        message = (
            f"tiers {other.name} and {tier.name} differ in workload or model but have one budget ({prompt:,} prompt and"
            f" {output:,} output tokens): the smaller is sized for the larger's runs; give each its own"
        )
        found.append(warning("spec.tiers", message, standalone=True))
    return tuple(found)


def _speculative(tier: EffectiveTier) -> Iterator[Finding]:
    speculative, version = tier.speculative, tier.engine.version
    if speculative is None or speculative.method is SpeculativeMethod.NGRAM:
        return
    if not any(effort.thinking_tokens for effort in tier.sizing_input.efforts):
        return
    if version is None or version < BUDGET_WITH_DRAFTS_SINCE:
        known = "of unknown version" if version is None else ".".join(map(str, version))
        message = (
            f"speculative decoding ({speculative.method}) with thinking budgets on an engine {known}: engines before"
            f" {'.'.join(map(str, BUDGET_WITH_DRAFTS_SINCE[:2]))} do not enforce the budget then, and thinking takes"
            " the answer's tokens; use a newer engine or no drafts"
        )
        yield warning(f"{tier.path}.speculative", message, Reason.NOT_ENFORCEABLE, tier=tier.name, standalone=True)


def _same_efforts(tier: EffectiveTier) -> Iterator[Finding]:
    efforts = tier.sizing_input.efforts
    if len(efforts) > 1 and len({(e.thinking_tokens, e.answer_tokens) for e in efforts}) == 1:
        names = ", ".join(effort.name for effort in efforts)
        message = f"efforts {names} of tier {tier.name} have the same budgets: choosing one changes nothing"
        yield warning(f"{tier.path}.efforts", message, tier=tier.name, standalone=True)
