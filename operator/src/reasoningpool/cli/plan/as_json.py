"""A capacity plan for programs."""

from __future__ import annotations

from typing import Any

from reasoningpool.capacity.advice import Advice, Reach
from reasoningpool.capacity.plan import Cost, EffortTimes, Percentiles, TierCapacity
from reasoningpool.cli.curve import curve_json
from reasoningpool.cli.plan.facts import assumptions, file_sequences, token_distribution
from reasoningpool.cli.plan.pools import PlannedPool, PlannedTier
from reasoningpool.cli.shortfall import shortfall_json
from reasoningpool.simulation.replicas import FIRST_ANSWER, Objective
from reasoningpool.sizing import DoesNotFit


def as_json(pool: PlannedPool) -> dict[str, Any]:
    """Keys are stable; times are seconds or milliseconds as their names say, shares are 0 to 1."""
    return {
        "name": pool.name,
        "namespace": pool.namespace,
        "estimate": True,
        "tiers": [_tier_json(tier) for tier in pool.tiers],
        "warnings": list(map(str, pool.warnings)),
    }


def _tier_json(planned: PlannedTier) -> dict[str, Any]:
    answer = planned.answer
    head = {"name": planned.tier.name, "source": planned.source, "requests": planned.requests.runs}
    tail = {"assumptions": assumptions(planned), "warnings": list(map(str, planned.warnings))}
    if isinstance(answer, DoesNotFit):
        return head | {"doesNotFit": shortfall_json(answer)} | tail
    body = {
        "ratePerSecond": _rounded(answer.rate),
        "replicas": answer.answer.replicas,
        "gpus": answer.gpus,
        "product": planned.tier.effective.accelerator.facts.product,
        "utilization": _rounded(answer.answer.utilization),
        "maxNumSeqs": answer.sizing.max_num_seqs,
        "maxNumSeqsOfFile": file_sequences(planned),
        "limitedBy": answer.sizing.limited_by.value,
        "maxModelLen": answer.sizing.max_model_len,
        "objectivesKept": answer.kept,
        "objectives": [_objective_json(objective, planned.percentile) for objective in answer.answer.objectives],
        "longPrompts": _long_prompts_json(answer),
        "efforts": [_effort_json(effort) for effort in answer.efforts if effort.name is not None],
        "all": _effort_json(answer.efforts[-1]),
        "cost": _cost_json(answer.cost),
        "curve": curve_json(answer.curve),
        "budgets": [_reach_json(reach) for reach in answer.reaches],
        "advice": [_advice_json(advice) for advice in answer.advice],
        "tokenDistribution": token_distribution(answer),
    }
    return head | body | tail


def _cost_json(cost: Cost | None) -> dict[str, float] | None:
    if cost is None:
        return None
    return {
        "perHour": _rounded(cost.per_hour),
        "perThousandAnswers": _rounded(cost.per_thousand_answers),
        "perMillionOutputTokens": _rounded(cost.per_million_output_tokens),
    }


def _reach_json(reach: Reach) -> dict[str, Any]:
    return {
        "effort": reach.effort,
        "field": reach.budget.value,
        "tokens": reach.tokens,
        "cutShare": _rounded(reach.cut_share),
        "longest": reach.longest,
    }


def _advice_json(advice: Advice) -> dict[str, Any]:
    return {
        "kind": advice.kind.value,
        "effort": advice.effort,
        "field": advice.budget.value,
        "tokens": advice.current,
        "suggestedTokens": advice.suggested,
        "text": advice.text,
    }


def _long_prompts_json(answer: TierCapacity) -> dict[str, Any] | None:
    found = answer.long_prompts
    if found is None:
        return None
    return {
        "promptTokens": found.budget,
        "overBudgetShare": _rounded(found.over_share),
        "refusedShare": _rounded(found.refused_share),
        "promptTokensOf99Percent": found.covering,
        "sequencesPlannedWith": answer.service.slots,
    }


def _objective_json(objective: Objective, percentile: int) -> dict[str, Any]:
    scale = 1 if objective.name == FIRST_ANSWER else 1000
    return {
        "name": objective.name,
        "percentile": percentile,
        "wanted": _rounded(objective.wanted * scale),
        "expected": _rounded(objective.expected * scale),
        "onIdleReplica": _rounded(objective.alone * scale),
        "met": objective.met,
        "reachable": objective.reachable,
    }


def _effort_json(effort: EffortTimes) -> dict[str, Any]:
    return {
        "name": effort.name,
        "share": _rounded(effort.share),
        "promptTokens": _percentiles_json(effort.prompt),
        "thinkingTokens": _percentiles_json(effort.thinking),
        "answerTokens": _percentiles_json(effort.answer),
        "queueSeconds": _percentiles_json(effort.queue),
        "timeToFirstAnswerTokenSeconds": _percentiles_json(effort.first_answer_token),
        "endToEndSeconds": _percentiles_json(effort.end),
        "timePerOutputTokenMilliseconds": _percentiles_json(effort.per_token, 1000),
    }


def _percentiles_json(values: Percentiles | None, scale: float = 1) -> dict[str, float] | None:
    if values is None:
        return None
    return {name: _rounded(getattr(values, name) * scale) for name in ("p50", "p90", "p99")}


def _rounded(value: float) -> float:
    """Four significant digits: more would look measured."""
    return float(f"{value:.4g}") if abs(value) < 1000 else round(value)
