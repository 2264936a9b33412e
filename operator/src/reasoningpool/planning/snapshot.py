"""The world as planning sees it: values only, so that a plan can be reproduced from what it saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reasoningpool.objects import Availability, Kind, Manifest, ObjectKey
from reasoningpool.planning.observations import NOTHING_OBSERVED, Observations


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyFailure:
    """A permanent error of applying one child that still stands, for status to report."""

    key: ObjectKey
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The world as last read: the pool, the children that carry its label, and their pods.

    `children` are the objects of the watched kinds (`KINDS`) with the pool's label, `pods` its engine pods.
    `failures` are permanent apply errors that still stand, `observations` what earlier plans asked for.
    `availability` says which optional kinds can be applied; one that is not in it is not served.
    """

    pool: Manifest
    children: tuple[Manifest, ...] = ()
    pods: tuple[Manifest, ...] = ()
    failures: tuple[ApplyFailure, ...] = ()
    observations: Observations = NOTHING_OBSERVED
    availability: Mapping[Kind, Availability] = field(default_factory=dict)

    def can_apply(self, kind: Kind) -> bool:
        """Whether this cluster takes objects of the kind from the operator."""
        return not kind.optional or self.availability.get(kind) is Availability.AVAILABLE
