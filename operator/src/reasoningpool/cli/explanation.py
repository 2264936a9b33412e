"""The sizing in words: every step of the calculation, for people (table) and programs (JSON)."""

from __future__ import annotations

import textwrap
from typing import Any

from reasoningpool.api.text import printable
from reasoningpool.cli.curve import curve_json, curve_text
from reasoningpool.cli.shortfall import shortfall_json
from reasoningpool.planning.offline import OfflineTier
from reasoningpool.planning.outcome import fit_message
from reasoningpool.planning.status.tier_status import sizing_status
from reasoningpool.sizing import DoesNotFit, SizingPlan, throughput_curve

_WIDTH = 100


def as_json(name: str, namespace: str, tiers: tuple[OfflineTier, ...], *, curve: bool = False) -> dict[str, Any]:
    """`tiers[].sizing` has the keys of `status.tiers[].sizing`; a tier that does not fit has `doesNotFit` instead.

    `curve` adds throughput and preempted share against `max_num_seqs`.
    """
    found = [_tier_json(tier) for tier in tiers]
    if curve:
        for entry, tier in zip(found, tiers, strict=True):
            entry["curve"] = curve_json(throughput_curve(tier.inputs))
    return {"name": name, "namespace": namespace, "tiers": found}


def _tier_json(tier: OfflineTier) -> dict[str, Any]:
    answer = tier.sizing
    entry: dict[str, Any] = {"name": tier.name}
    if isinstance(answer, SizingPlan):
        entry["sizing"] = sizing_status(answer).model_dump(by_alias=True, mode="json")
    else:
        entry["doesNotFit"] = shortfall_json(answer)
    return entry | {
        "steps": [{"name": step.name, "value": step.value, "formula": step.formula} for step in answer.steps],
        "warnings": list(map(str, tier.warnings)),
    }


def as_text(name: str, tiers: tuple[OfflineTier, ...], *, curve: bool = False) -> str:
    """The same for a terminal."""
    return "\n\n".join(_tier_text(name, tier) + (_curve(tier) if curve else "") for tier in tiers)


def _curve(tier: OfflineTier) -> str:
    points = throughput_curve(tier.inputs)
    return f"\n\n{curve_text(points)}" if points else ""


def _tier_text(name: str, tier: OfflineTier) -> str:
    answer = tier.sizing
    lines = [f"{name} / {tier.name}: {tier.summary}"]
    width = max((len(step.name) for step in answer.steps), default=0)
    value_width = max((len(step.value) for step in answer.steps), default=0)
    for step in answer.steps:
        head = f"  {step.name:<{width}}  {step.value:>{value_width}}  "
        room = max(30, _WIDTH - len(head))
        first, *rest = textwrap.wrap(step.formula, room) or [""]
        lines.append((head + first).rstrip())
        lines.extend(" " * len(head) + more for more in rest)
    if isinstance(answer, DoesNotFit):
        lines.append(
            textwrap.fill(f"does not fit: {fit_message(answer)}", _WIDTH, initial_indent="  ", subsequent_indent="    ")
        )
    else:
        lines.append(
            f"  => --max-num-seqs {answer.max_num_seqs} (limited by {answer.limited_by}),"
            f" --max-model-len {answer.max_model_len}"
        )
    lines.extend(
        textwrap.fill(f"warning: {warning}", _WIDTH, initial_indent="  ", subsequent_indent="    ")
        for warning in tier.warnings
    )
    return "\n".join(printable(line) for paragraph in lines for line in paragraph.split("\n"))
