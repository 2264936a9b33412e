"""What a capacity plan says in both its forms, text and JSON."""

from __future__ import annotations

from typing import Any

from reasoningpool.capacity.plan import TierCapacity
from reasoningpool.cli.plan.pools import PlannedTier
from reasoningpool.simulation.replicas import MOST_UTILIZATION
from reasoningpool.sizing import DoesNotFit, Effort, SizingPlan, TokenQuantiles


def token_distribution(answer: TierCapacity) -> list[dict[str, Any]]:
    """The lengths that were planned for, as the resource takes them; an effort that has none is left out."""
    return [entry for effort in answer.sized_with.efforts if (entry := _distribution(effort))]


def _distribution(effort: Effort) -> dict[str, Any] | None:
    def entry(values: TokenQuantiles | None) -> dict[str, int] | None:
        return None if values is None else {"p50": values.p50, "p90": values.p90, "p99": values.p99}

    found = {"prompt": entry(effort.prompt_distribution), "output": entry(effort.output_distribution)}
    kept = {key: value for key, value in found.items() if value is not None}
    return {"effort": effort.name} | kept if kept else None


def file_sequences(planned: PlannedTier) -> int | None:
    """`max_num_seqs` of the file as it stands, None where it does not fit."""
    sizing = planned.tier.sizing
    return sizing.max_num_seqs if isinstance(sizing, SizingPlan) else None


def assumptions(planned: PlannedTier) -> list[str]:
    """What the figures rest on, a sentence each."""
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
