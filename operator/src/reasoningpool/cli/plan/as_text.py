"""A capacity plan for people: tables and sentences for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from reasoningpool.capacity.plan import Percentiles, TierCapacity
from reasoningpool.cli.curve import curve_text
from reasoningpool.cli.plan.facts import assumptions, file_sequences, token_distribution
from reasoningpool.cli.plan.pools import PlannedPool, PlannedTier
from reasoningpool.planning.outcome import fit_message
from reasoningpool.simulation.replicas import FIRST_ANSWER, MOST_REPLICAS, PER_TOKEN, Objective
from reasoningpool.sizing import DoesNotFit

_WIDTH: Final = 110
_MOST_CURVE_LINES: Final = 14
_SHOWN_FROM: Final = 0.005
_NO_OBJECTIVE: Final = (
    f"no latency objective is set (objectives.{FIRST_ANSWER}, objectives.{PER_TOKEN}): the replicas are for"
    " throughput alone"
)


def as_text(pool: PlannedPool) -> str:
    """Tables and sentences, a block per tier."""
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
    for warning in planned.warnings:
        yield from _wrapped(f"warning: {warning}")
    yield "  assumed"
    for text in assumptions(planned):
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
    of_file = file_sequences(planned)
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
    entries = token_distribution(answer)
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


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent + "  ", break_long_words=False)
