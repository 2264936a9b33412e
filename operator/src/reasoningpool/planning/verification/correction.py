"""A sizing corrected by the KV pool that the engines really have; remembered in `status.tiers[].correction`.

A correction is written into the status first, and only a plan that finds it there applies it. So what rolls the pods
is always on record, whenever the operator is restarted in between. It holds for what the user wrote about the sizing
(`sizing_key`) and goes with it; defaults of the operator are not part of that, so that an upgrade neither drops a
correction nor makes one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from reasoningpool.api.status import CorrectionStatus
from reasoningpool.planning.live import LiveTier
from reasoningpool.planning.observations import KVPool
from reasoningpool.planning.previous import PreviousTier
from reasoningpool.rollout import running_max_num_seqs
from reasoningpool.sizing import DoesNotFit, SizingInput, SizingPlan
from reasoningpool.sizing import plan as size

# The same input gives the same answer, and a pool is planned far more often than its budgets change.
cached_size = lru_cache(maxsize=4096)(size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """The smallest KV pool seen for these inputs, smaller than planned.

    `max_num_seqs` is what the pods were rolled for: the lowest limit so derived, None while the limit that ran was
    low enough for the real pool anyway (or was stated by the user, whose number stays).
    """

    key: str
    pool: KVPool
    planned_usable_kv_tokens: int
    planned_max_num_seqs: int
    max_num_seqs: int | None

    @property
    def intents(self) -> tuple[str, ...]:
        """What makes the pods roll (`render.pod_intent`). Nothing in it depends on the operator's version."""
        return () if self.max_num_seqs is None else (f"max-num-seqs {self.max_num_seqs}",)

    def apply_to(self, inputs: SizingInput) -> SizingInput:
        """The inputs with the real pool."""
        return with_pool(inputs, self.pool)

    def to_status(self) -> CorrectionStatus:
        """As it is kept."""
        return CorrectionStatus(
            inputs=self.key,
            num_blocks=self.pool.num_blocks,
            block_size=self.pool.block_size,
            usable_kv_tokens=self.pool.usable_kv_tokens,
            planned_usable_kv_tokens=self.planned_usable_kv_tokens,
            planned_max_num_seqs=self.planned_max_num_seqs,
            max_num_seqs=self.max_num_seqs,
        )


def recorded(before: PreviousTier | None, key: str) -> Correction | None:
    """The correction that a tier's last status holds for these inputs, None if it holds none or one for others."""
    found = before.correction if before else None
    if found is None or found.inputs != key:
        return None
    return Correction(
        key=key,
        pool=KVPool(num_blocks=found.num_blocks, block_size=found.block_size),
        planned_usable_kv_tokens=found.planned_usable_kv_tokens,
        planned_max_num_seqs=found.planned_max_num_seqs,
        max_num_seqs=found.max_num_seqs,
    )


def with_pool(inputs: SizingInput, pool: KVPool) -> SizingInput:
    """The inputs with a measured KV pool."""
    return replace(inputs, measured_num_blocks=pool.num_blocks, measured_block_size=pool.block_size)


def sized(inputs: SizingInput, correction: Correction | None) -> SizingPlan | DoesNotFit:
    """The plan in force. A corrected one that does not fit changes nothing: the pods go on as planned."""
    planned = cached_size(inputs)
    if correction is None or isinstance(planned, DoesNotFit):
        return planned
    corrected = cached_size(correction.apply_to(inputs))
    return planned if isinstance(corrected, DoesNotFit) else corrected


def cause_of_change(correction: Correction | None, live: LiveTier) -> str:
    """Why the pods roll, for `rollout.change`, where a correction is what lowers the limit that runs."""
    running = running_max_num_seqs(live.stateful_set)
    if correction is None or correction.max_num_seqs is None or running is None or running <= correction.max_num_seqs:
        return ""
    return (
        f"corrected because the engine's KV pool holds {correction.pool.usable_kv_tokens:,} tokens and "
        f"{correction.planned_usable_kv_tokens:,} were planned: "
    )
