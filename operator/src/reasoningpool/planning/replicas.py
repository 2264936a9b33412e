"""How many replicas a tier should have, and who says so. The one place that decides the number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reasoningpool.api.spec_tier import TierSpec

# What a StatefulSet is created with when nobody has stated a number; also the API's own default.
_INITIAL_REPLICAS: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDecision:
    """`desired` is the number that counts for status; `owned` says whether the operator applies it.

    Where it is not owned, the number is whatever the StatefulSet asks for: somebody else scales it (ADR 3).
    """

    desired: int
    owned: bool
    why: str

    @property
    def to_apply(self) -> int | None:
        """The number to apply, None where it is left to its owner."""
        return self.desired if self.owned else None


def decide_replicas(tier: TierSpec, live: int | None) -> ReplicaDecision:
    """The replicas of a tier, given what its StatefulSet asks for now (`live`, None before it exists).

    A fixed `replicas` is applied, else `scaling.minReplicas` (scaling has no effect beyond it yet). With neither,
    a new StatefulSet starts with 1 and is then left alone.
    """
    if tier.scaling is not None:
        return ReplicaDecision(
            desired=tier.scaling.min_replicas,
            owned=True,
            why=f"scaling.minReplicas is {tier.scaling.min_replicas}",
        )
    if tier.replicas is not None:
        return ReplicaDecision(desired=tier.replicas, owned=True, why=f"replicas is {tier.replicas}")
    return ReplicaDecision(
        desired=_INITIAL_REPLICAS if live is None else live,
        owned=False,
        why="neither replicas nor scaling is set: the number is left to the StatefulSet's scaler",
    )
