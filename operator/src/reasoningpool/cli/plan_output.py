"""A capacity plan in words: for people (table), for programs (JSON)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final

from reasoningpool.capacity.picture import Panel, draw
from reasoningpool.capacity.plan import EffortTimes, Percentiles, TierCapacity
from reasoningpool.capacity.replicas import FIRST_ANSWER, MOST_REPLICAS, MOST_UTILIZATION, PER_TOKEN, Objective
from reasoningpool.cli.curve import curve_json, curve_text
from reasoningpool.cli.plan_pools import PlannedPool, PlannedTier
from reasoningpool.cli.shortfall import shortfall_json
from reasoningpool.planning.outcome import fit_message
from reasoningpool.sizing import DoesNotFit, Effort, SizingPlan, TokenQuantiles

_WIDTH: Final = 110
_MOST_CURVE_LINES: Final = 14
_SHOWN_FROM: Final = 0.005
_NO_OBJECTIVE: Final = (
    f"no latency objective is stated (objectives.{FIRST_ANSWER}, objectives.{PER_TOKEN}): the replicas are for"
    " throughput alone"
)


def as_json(pool: PlannedPool) -> dict[str, Any]:
    """Keys are stable; times are seconds or milliseconds as their names say, shares are 0 to 1."""
    return {
        "name": pool.name,
        "namespace": pool.namespace,
        "estimate": True,
        "tiers": [_tier_json(tier) for tier in pool.tiers],
        "warnings": list(pool.warnings),
    }


def _tier_json(planned: PlannedTier) -> dict[str, Any]:
    answer = planned.answer
    head = {"name": planned.tier.name, "source": planned.source, "requests": planned.requests.runs}
    tail = {"assumptions": _assumptions(planned), "warnings": list(planned.warnings)}
    if isinstance(answer, DoesNotFit):
        return head | {"doesNotFit": shortfall_json(answer)} | tail
    body = {
        "ratePerSecond": _rounded(answer.rate),
        "replicas": answer.answer.replicas,
        "gpus": answer.gpus,
        "product": planned.tier.effective.accelerator.facts.product,
        "utilization": _rounded(answer.answer.utilization),
        "maxNumSeqs": answer.sizing.max_num_seqs,
        "maxNumSeqsOfFile": _file_sequences(planned),
        "limitedBy": answer.sizing.limited_by.value,
        "maxModelLen": answer.sizing.max_model_len,
        "objectivesKept": answer.kept,
        "objectives": [_objective_json(objective, planned.percentile) for objective in answer.answer.objectives],
        "longPrompts": _long_prompts_json(answer),
        "efforts": [_effort_json(effort) for effort in answer.efforts if effort.name is not None],
        "all": _effort_json(answer.efforts[-1]),
        "cost": None
        if answer.cost is None
        else {
            "perHour": _rounded(answer.cost.per_hour),
            "perThousandAnswers": _rounded(answer.cost.per_thousand_answers),
            "perMillionOutputTokens": _rounded(answer.cost.per_million_output_tokens),
        },
        "curve": curve_json(answer.curve),
        "budgets": [
            {
                "effort": reach.effort,
                "field": reach.budget.value,
                "tokens": reach.tokens,
                "cutShare": _rounded(reach.cut_share),
                "longest": reach.longest,
            }
            for reach in answer.reaches
        ],
        "advice": [
            {
                "kind": advice.kind.value,
                "effort": advice.effort,
                "field": advice.budget.value,
                "tokens": advice.current,
                "suggestedTokens": advice.suggested,
                "text": advice.text,
            }
            for advice in answer.advice
        ],
        "tokenDistribution": [entry for effort in answer.sized_with.efforts if (entry := _distribution(effort))],
    }
    return head | body | tail


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


def _distribution(effort: Effort) -> dict[str, Any] | None:
    def entry(values: TokenQuantiles | None) -> dict[str, int] | None:
        return None if values is None else {"p50": values.p50, "p90": values.p90, "p99": values.p99}

    found = {"prompt": entry(effort.prompt_distribution), "output": entry(effort.output_distribution)}
    kept = {key: value for key, value in found.items() if value is not None}
    return {"effort": effort.name} | kept if kept else None


def _file_sequences(planned: PlannedTier) -> int | None:
    sizing = planned.tier.sizing
    return sizing.max_num_seqs if isinstance(sizing, SizingPlan) else None


def as_text(pool: PlannedPool) -> str:
    """The same for a terminal."""
    blocks = ["\n".join(_tier_lines(pool.name, tier)) for tier in pool.tiers]
    if pool.warnings:
        blocks.append("\n".join(line for text in pool.warnings for line in _wrapped(f"warning: {text}", "")))
    return "\n\n".join(blocks)


def _tier_lines(name: str, planned: PlannedTier) -> Iterator[str]:
    answer = planned.answer
    yield f"{name} / {planned.tier.name}: {planned.tier.summary}"
    runs = "" if planned.requests.runs is None else f", {planned.requests.runs:,} requests"
    yield f"  lengths from {planned.source}{runs}"
    if isinstance(answer, DoesNotFit):
        yield from _wrapped(f"does not fit: {fit_message(answer)}")
    else:
        yield from _answer_lines(planned, answer)
        yield from _effort_table(answer)
        yield from _curve_table(answer)
        for advice in answer.advice:
            yield from _wrapped(f"advice: {advice.text}")
        yield from _snippet(answer)
    for text in planned.warnings:
        yield from _wrapped(f"warning: {text}")
    yield "  assumed"
    for text in _assumptions(planned):
        yield from _wrapped(f"- {text}", "    ")


def _answer_lines(planned: PlannedTier, answer: TierCapacity) -> Iterator[str]:
    found, product = answer.answer, planned.tier.effective.accelerator.facts.product
    devices = f"{_counted(answer.gpus, 'GPU')} ({product})" if answer.gpus else f"on {product}"
    yield (
        f"  => {_counted(found.replicas, 'replica')}, {devices} for {answer.rate:.4g} requests/s;"
        f" utilization {100 * found.utilization:.0f} % (estimate)"
    )
    if found.replicas > MOST_REPLICAS:
        yield f"  more than the {MOST_REPLICAS:,} replicas a tier may have: use a larger accelerator or several pools"
    yield from _headline_notes(planned, answer)
    of_file = _file_sequences(planned)
    was = "" if of_file in {None, answer.sizing.max_num_seqs} else f"; the file as it stands gives {of_file:,}"
    yield f"  max_num_seqs {answer.sizing.max_num_seqs:,} per replica, limited by {answer.sizing.limited_by.value}{was}"
    for objective in found.objectives:
        yield from _wrapped(_objective_words(objective, planned.percentile, answer))
    if found.replicas > found.by_load:
        yield f"  the load alone needs {_counted(found.by_load, 'replica')}; the others are for the objectives"
    cost = answer.cost
    if cost is not None:
        yield (
            f"  cost {cost.per_thousand_answers:.4g} per 1,000 answers, {cost.per_million_output_tokens:.4g} per"
            f" million output tokens, {cost.per_hour:.4g} per hour (estimate)"
        )


def _headline_notes(planned: PlannedTier, answer: TierCapacity) -> Iterator[str]:
    """What the number of replicas does not tell of itself."""
    if not answer.answer.objectives:
        yield from _wrapped(_NO_OBJECTIVE)
    long = answer.long_prompts
    if long is None:
        return
    runs = planned.requests.runs
    refused = (
        f"the engine refuses {long.count(long.refused_share, runs)}: prompt and output exceed its max_model_len"
        f" {long.max_model_len:,}"
        if long.refused_share
        else f"the engine refuses none of them at max_model_len {long.max_model_len:,}"
    )
    covering = f"; promptTokens {long.covering:,} covers 99 %" if long.covering > long.budget else ""
    yield from _wrapped(
        f"prompts of {long.count(long.over_share, runs)} exceed promptTokens {long.budget:,}; {refused}; the replicas"
        f" are for all of them, with room for {answer.service.slots:,} at a time{covering}"
    )


def _objective_words(objective: Objective, percentile: int, answer: TierCapacity) -> str:
    scale, unit = (1, "s") if objective.name == FIRST_ANSWER else (1000, "ms")
    wanted, expected = f"{objective.wanted * scale:g} {unit}", f"{objective.expected * scale:.3g} {unit}"
    head = f"objective {objective.name} {wanted} at p{percentile}"
    if objective.met:
        return f"{head}: {expected}, kept"
    alone = f"{objective.alone * scale:.3g} {unit}"
    if objective.reachable:
        return f"{head}: {expected}, NOT kept by {answer.answer.replicas:,} replicas (an idle replica takes {alone})"
    words = f"{head}: {expected}, NOT kept: an idle replica takes {alone}, so no number of replicas keeps it"
    if objective.name != FIRST_ANSWER:
        return words
    return f"{words}; thinking of up to {answer.thinking_within(objective.wanted, percentile):,} tokens would"


def _effort_table(answer: TierCapacity) -> Iterator[str]:
    shown = answer.efforts if len(answer.efforts) > 2 else answer.efforts[:1]
    lengths = [("p50 / p90 / p99", "share", "prompt tokens", "thinking tokens", "answer tokens")]
    times = [("p50 / p90 / p99", "queue s", "first answer token s", "end s", "ms per token")]
    for effort in shown:
        name, share = effort.name or "all", f"{100 * effort.share:.0f} %"
        lengths.append((name, share, _counts(effort.prompt), _counts(effort.thinking), _counts(effort.answer)))
        waits = _seconds(effort.queue), _seconds(effort.first_answer_token), _seconds(effort.end)
        times.append((name, *waits, _seconds(effort.per_token, 1000)))
    for rows in (lengths, times):
        yield ""
        yield from _table(rows)


def _counts(values: Percentiles) -> str:
    return f"{values.p50:.0f} / {values.p90:.0f} / {values.p99:.0f}"


def _seconds(values: Percentiles | None, scale: float = 1) -> str:
    if values is None:
        return "-"
    scaled = (values.p50 * scale, values.p90 * scale, values.p99 * scale)
    return " / ".join(f"{value:.3g}" if value >= _SHOWN_FROM else "0" for value in scaled)


def _curve_table(answer: TierCapacity) -> Iterator[str]:
    points = answer.curve
    every = max(1, -(-len(points) // _MOST_CURVE_LINES))
    kept = tuple(p for place, p in enumerate(points) if p.derived or place % every == 0 or place == len(points) - 1)
    yield ""
    yield curve_text(kept)
    yield ""


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        yield ("    " + "  ".join(cells)).rstrip()


def _snippet(answer: TierCapacity) -> Iterator[str]:
    """The distribution as the resource takes it."""
    entries = [entry for effort in answer.sized_with.efforts if (entry := _distribution(effort))]
    if not entries:
        return
    yield "  to size the pool for these lengths, put this into the tier:"
    yield "    tokenDistribution:"
    for entry in entries:
        parts = [f"effort: {entry['effort']}"]
        for key in [key for key in ("prompt", "output") if key in entry]:
            figures = ", ".join(f"{name}: {value}" for name, value in entry[key].items())
            parts.append(f"{key}: {{{figures}}}")
        yield f"    - {{{', '.join(parts)}}}"


def _assumptions(planned: PlannedTier) -> list[str]:
    answer = planned.answer
    notes = list(planned.notes)
    if isinstance(answer, DoesNotFit):
        return notes
    service, slots = answer.service, answer.service.slots
    times = (
        f"times are estimates, no GPU was measured: a token every {1000 * service.step_seconds[1]:.3g} ms alone and"
        f" {1000 * service.step_seconds[slots]:.3g} ms with {slots:,} running (memory bandwidth), prompts at"
        f" {service.prefill_tokens_per_second:,.0f} tokens/s (compute)"
    )
    queueing = (
        f"{answer.traffic.words}; {len(answer.answer.times):,} requests simulated on replicas of {slots:,} slots"
        " that share their speed, prompts first; the rest wait in order of arrival, at the replica with the fewest"
    )
    reserve = (
        f"replicas are filled to {100 * MOST_UTILIZATION:.0f} % at most; none is spare for failures or rollouts;"
        " preemption is kept rare by the sizing and not simulated"
    )
    notes += [times, queueing, reserve]
    if planned.tier.effective.speculative is not None:
        notes.append("speculative decoding is not counted: accepted drafts make decoding faster than said here")
    return notes


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent + "  ", break_long_words=False)


def picture(pools: Sequence[PlannedPool]) -> str:
    """The lengths against the budgets, as SVG."""
    panels = [
        Panel(title=f"{pool.name} / {planned.tier.name}", source=planned.source, requests=planned.requests)
        for pool in pools
        for planned in pool.tiers
    ]
    return draw(panels)
