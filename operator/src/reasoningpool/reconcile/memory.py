"""What one pool's task remembers between cycles, so that a cycle at rest asks for nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from reasoningpool.planning.types import ApplyFailure, ObjectKey, PodLog


@dataclass(slots=True)
class Applied:
    """An apply that went through: while neither side has changed since, there is nothing to ask."""

    wanted: bytes
    uid: str
    shape: bytes
    at: float
    replicas: int | None = None


@dataclass(slots=True)
class Refused:
    """An apply that was refused for good, and what would make another try worthwhile."""

    wanted: bytes
    shape: bytes | None
    failure: ApplyFailure
    retry_at: float


@dataclass(slots=True)
class StatusSeen:
    """The status we wanted and what the API server made of it."""

    wanted: bytes
    live: bytes


@dataclass(slots=True)
class LogRead:
    """The end of a log, and the pod's resourceVersion it was read at."""

    pod: ObjectKey
    uid: str
    pod_version: int
    at: float
    log: PodLog


@dataclass(slots=True)
class PoolMemory:
    """All of it may be lost at any time; then the next cycle applies everything once more."""

    applied: dict[ObjectKey, Applied] = field(default_factory=dict)
    refused: dict[ObjectKey, Refused] = field(default_factory=dict)
    status: StatusSeen | None = None
    logs: dict[str, LogRead] = field(default_factory=dict)
    generation: int = 0

    def failures(self) -> tuple[ApplyFailure, ...]:
        """The refusals that still stand, in a stable order."""
        return tuple(self.refused[key].failure for key in sorted(self.refused))

    def keep_only(self, wanted: set[ObjectKey]) -> None:
        """Forget what the plan no longer contains."""
        for key in self.applied.keys() - wanted:
            del self.applied[key]
        for key in self.refused.keys() - wanted:
            del self.refused[key]
