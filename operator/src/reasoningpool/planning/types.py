"""What planning sees and what it answers: values only, so that a plan can be printed, compared and tested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from reasoningpool.objects import Availability, Kind, Manifest, ObjectKey
from reasoningpool.planning.verification.kv_pools import Reading, ReadingWanted


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLog:
    """The end of a container's log, read because planning asked for it in `Plan.logs_wanted`."""

    container: str
    previous: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyFailure:
    """A permanent error of applying one child in the last cycle, told to planning so that status can say it."""

    key: ObjectKey
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRefusal:
    """A pod that the API server refused to create, and its words; `pod` is empty where they do not tell which."""

    pod: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The world as last read: the pool, the children that carry its label, and their pods.

    `children` are the objects of the watched kinds (`KINDS`) with the pool's label, `pods` its engine pods.
    `logs` maps pod uid to log ends asked for before. `failures` are permanent apply errors that still stand.
    `refusals` maps the uid of a StatefulSet that is short of pods to what was said when they were refused.
    `readings` are what engines said of their KV pools, by the key of `Plan.readings_wanted`.
    `availability` says which optional kinds can be applied; one that is not in it is not served.
    """

    pool: Manifest
    children: tuple[Manifest, ...] = ()
    pods: tuple[Manifest, ...] = ()
    logs: Mapping[str, PodLog] = field(default_factory=dict)
    failures: tuple[ApplyFailure, ...] = ()
    refusals: Mapping[str, tuple[PodRefusal, ...]] = field(default_factory=dict)
    readings: Mapping[str, Reading] = field(default_factory=dict)
    availability: Mapping[Kind, Availability] = field(default_factory=dict)

    def can_apply(self, kind: Kind) -> bool:
        """Whether this cluster takes objects of the kind from the operator."""
        return not kind.optional or self.availability.get(kind) is Availability.AVAILABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """One server-side apply with the main field manager.

    `replicas` (StatefulSets only) is applied by the scale field manager; None leaves the number to whoever
    owns it. `orphan_on_immutable` lets the executor delete the object with orphaned pods and apply it anew
    when the API server refuses a change of an immutable field.
    """

    manifest: Manifest
    replicas: int | None = None
    orphan_on_immutable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prune:
    """Delete this object, if it still is the one that was seen."""

    key: ObjectKey
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWanted:
    """A container whose log end would explain why its pod fails."""

    namespace: str
    pod: str
    pod_uid: str
    container: str
    previous: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalsWanted:
    """A StatefulSet with fewer pods than it asks for: if this lasts, its events tell why."""

    namespace: str
    stateful_set_uid: str


class EventType(StrEnum):
    """Kubernetes' two event types."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventNote:
    """A Kubernetes event for what a user must notice; sent once per (reason, message), not per cycle."""

    type: EventType
    reason: str
    message: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do, in this order: applies, prunes, pod deletions, status, events, then sleep.

    `applies` come in the order of their kinds' ranks. `status` is the whole status to apply, or None to leave it
    alone. `requeue_after_seconds` is None when only events and the resync wake the pool.
    """

    applies: tuple[Apply, ...] = ()
    prunes: tuple[Prune, ...] = ()
    pod_deletions: tuple[Prune, ...] = ()
    logs_wanted: tuple[LogWanted, ...] = ()
    refusals_wanted: tuple[RefusalsWanted, ...] = ()
    readings_wanted: tuple[ReadingWanted, ...] = ()
    status: Manifest | None = None
    events: tuple[EventNote, ...] = ()
    requeue_after_seconds: float | None = None
