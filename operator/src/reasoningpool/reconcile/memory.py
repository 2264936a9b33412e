"""What one pool's task remembers between cycles, so that a cycle at rest asks for nothing."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from reasoningpool.objects import ObjectKey
from reasoningpool.planning.snapshot import ApplyFailure


@dataclass(slots=True)
class Applied:
    """An apply that went through: while neither side has changed since, there is nothing to ask."""

    wanted: bytes
    uid: str
    shape: bytes
    at: float


@dataclass(frozen=True, slots=True)
class Scaled:
    """A number of replicas that the scale manager has applied to this very StatefulSet."""

    uid: str
    replicas: int


@dataclass(frozen=True, slots=True)
class Begun:
    """A StatefulSet that the scale manager created whole, for the main manager to take over."""

    uid: str
    wanted: bytes


@dataclass(slots=True)
class Refused:
    """An apply that was refused, and what would make another try worthwhile."""

    wanted: bytes
    shape: bytes | None
    failure: ApplyFailure
    retry_at: float
    tries: int = 1
    # The refused object that this one waits for; without it there is nothing to try.
    cause: ObjectKey | None = None


@dataclass(slots=True)
class StatusSeen:
    """The status we wanted, what the API server made of it, and the pool's resourceVersion then."""

    wanted: bytes
    live: bytes
    version: int


@dataclass(slots=True)
class PoolMemory:
    """All of it may be lost at any time; then the next cycle applies everything once more."""

    applied: dict[ObjectKey, Applied] = field(default_factory=dict)
    scaled: dict[ObjectKey, Scaled] = field(default_factory=dict)
    refused: dict[ObjectKey, Refused] = field(default_factory=dict)
    begun: dict[ObjectKey, Begun] = field(default_factory=dict)
    status: StatusSeen | None = None
    generation: int = 0
    # Factor of a delay; differs from pool to pool so that they do not all try at once, and not from object to object.
    jitter: float = field(default_factory=lambda: random.uniform(0.8, 1.0))

    def failures(self) -> tuple[ApplyFailure, ...]:
        """The refusals that still stand: causes before what waits for them, otherwise in a stable order."""
        order = sorted(self.refused, key=lambda key: (self.refused[key].cause is not None, key))
        return tuple(self.refused[key].failure for key in order)

    def next_retry(self) -> float | None:
        """When the first refusal is due for another try, on the monotonic clock."""
        return min((refused.retry_at for refused in self.refused.values() if refused.cause is None), default=None)

    def keep_only(self, wanted: set[ObjectKey]) -> None:
        """Forget what the plan no longer contains."""
        for known in (self.applied, self.scaled, self.refused, self.begun):
            for key in known.keys() - wanted:
                del known[key]
