"""What planning answers: actions as values, each with its reason, so that a plan can be printed and compared.

`why` is for people (the operator's log): two actions that do the same are equal, whatever their reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from reasoningpool.objects import Manifest, ObjectKey
from reasoningpool.planning.observations import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """One server-side apply with the main field manager, which never sends `spec.replicas`.

    `orphan_on_immutable` lets the executor delete the object with orphaned pods and apply it anew when the API
    server refuses a change of an immutable field. `replicas_before` is how many replicas the object had, as far as
    that is known when it is gone: a StatefulSet is made with room for their pods.
    """

    manifest: Manifest
    orphan_on_immutable: bool = False
    replicas_before: int = field(default=0, compare=False)
    why: str = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The number of replicas of a StatefulSet, applied by a field manager of its own (ADR 3).

    One that this plan also applies and that does not exist yet is created with this number.
    """

    key: ObjectKey
    replicas: int
    why: str = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete this object, if it still is the one that was seen."""

    key: ObjectKey
    uid: str
    why: str = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLabel:
    """Set a label of a pod, or remove it (`value` None), if it still is the pod that was seen."""

    key: ObjectKey
    uid: str
    label: str
    value: str | None
    why: str = field(compare=False)


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
    """What to do, in this order: applies and scales, labels, deletes, status, events, then sleep.

    `wanted` are the observations that would help the next plan. `status` is the whole status to apply, or None to
    leave it alone. `requeue_after_seconds` is None when only events and the resync wake the pool.
    """

    applies: tuple[Apply, ...] = ()
    scales: tuple[Scale, ...] = ()
    labels: tuple[SetLabel, ...] = ()
    deletes: tuple[Delete, ...] = ()
    wanted: tuple[Request[Any], ...] = ()
    status: Manifest | None = None
    events: tuple[EventNote, ...] = ()
    requeue_after_seconds: float | None = None

    @property
    def actions(self) -> tuple[Apply | Scale | SetLabel | Delete, ...]:
        """All that changes objects other than the pool's own status, in order."""
        return (*self.applies, *self.scales, *self.labels, *self.deletes)
