"""Every kind of object the operator deals with, declared once (ADR 8).

Order of applying, watches, what is pruned, URL paths and RBAC follow from the table `KINDS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from typing_extensions import override

from reasoningpool.objects.keys import ObjectKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Verbs the operator needs on a kind, or on one subresource of it."""

    verbs: tuple[str, ...]
    subresource: str = ""
    # What the verbs are for, where that is not plain; a comment in the generated role.
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind, as the API server serves it, and what the operator does with its objects."""

    api_version: str
    kind: str
    plural: str
    grants: tuple[Grant, ...]
    # Order of applying, lowest first. Kinds with a rank are the pool's children: the operator applies them, and
    # prunes those that nothing asks for. None: the operator never applies this kind.
    rank: int | None = None
    # Listed, watched and kept in the store, by the label that all children and pods carry.
    watched: bool = False
    # No engine starts without it, so it passes before what only completes a pool.
    urgent: bool = False
    # The object belongs to the pool and all tiers need it; without it none of them works.
    shared: bool = False
    # With so little in it that an apply to somebody else's object may meet no conflict: look before applying.
    sparse: bool = False
    # Needed in the operator's own namespace only.
    home_only: bool = False
    # What brings an optional kind into a cluster, for messages ("the Prometheus Operator"). Empty: built in, or ours.
    installed_with: str = ""

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """The version within the group."""
        return self.api_version.rpartition("/")[2]

    @property
    def optional(self) -> bool:
        """Whether the operator works in a cluster that does not serve this kind."""
        return bool(self.installed_with)

    @property
    def owned(self) -> bool:
        """Whether the operator applies and prunes objects of this kind."""
        return self.rank is not None

    @override
    def __str__(self) -> str:
        return f"{self.kind} ({self.api_version})"


class Availability(StrEnum):
    """Whether the operator can use an optional kind in this cluster."""

    AVAILABLE = "Available"
    NOT_INSTALLED = "NotInstalled"
    # Served, but the operator may not list or watch it.
    FORBIDDEN = "Forbidden"


class UnknownKind(LookupError):  # noqa: N818
    """A kind that the table does not declare; a mistake in the operator, not in a resource."""


class Kinds:
    """A table of kinds. Raises ValueError when a kind, or a resource of a group, is declared twice."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._kinds = tuple(kinds)
        self._by_name = {(kind.api_version, kind.kind): kind for kind in self._kinds}
        resources = {(kind.group, kind.plural) for kind in self._kinds}
        if len(self._by_name) < len(self._kinds) or len(resources) < len(self._kinds):
            raise ValueError("a kind is declared twice")

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds)

    def with_kinds(self, *more: Kind) -> Kinds:
        """This table and some more kinds."""
        return Kinds((*self._kinds, *more))

    def of(self, key: ObjectKey) -> Kind:
        """The kind of an object. Raises UnknownKind."""
        kind = self._by_name.get((key.api_version, key.kind))
        if kind is None:
            raise UnknownKind(f"{key.kind} ({key.api_version}) is not declared in objects/kinds.py")
        return kind

    def rank(self, key: ObjectKey) -> int:
        """When an object is applied, lowest first. Raises UnknownKind, and ValueError if its kind is never applied."""
        kind = self.of(key)
        if kind.rank is None:
            raise ValueError(f"{kind} is not a kind that the operator applies")
        return kind.rank

    @property
    def watched(self) -> tuple[Kind, ...]:
        """What the store holds: children and pods, optional kinds included."""
        return tuple(kind for kind in self._kinds if kind.watched)

    @property
    def optional(self) -> tuple[Kind, ...]:
        """Kinds that a cluster may lack."""
        return tuple(kind for kind in self._kinds if kind.optional)


_READ: Final = ("get", "list", "watch")
# Of every kind of child.
OWN: Final = (Grant(verbs=(*_READ, "create", "patch", "delete")),)

POOL: Final = Kind(
    api_version="reasoningpool.io/v1alpha1",
    kind="ReasoningPool",
    plural="reasoningpools",
    grants=(
        Grant(verbs=_READ),
        Grant(subresource="status", verbs=("patch",)),
        Grant(
            subresource="finalizers",
            verbs=("update",),
            why="Needed to set owner references that block deletion where that admission check is on.",
        ),
    ),
)
POD: Final = Kind(
    api_version="v1",
    kind="Pod",
    plural="pods",
    watched=True,
    grants=(Grant(verbs=(*_READ, "patch", "delete")), Grant(subresource="log", verbs=("get",))),
)
EVENT: Final = Kind(
    api_version="v1",
    kind="Event",
    plural="events",
    grants=(
        Grant(
            verbs=("create", "patch", "list"),
            why="To write events about pools, and to list those of a StatefulSet whose pods are refused (why stands "
            "nowhere else). Without `list` everything works, and status only says where to look.",
        ),
    ),
)
LEASE: Final = Kind(
    api_version="coordination.k8s.io/v1",
    kind="Lease",
    plural="leases",
    home_only=True,
    grants=(Grant(verbs=("get", "create", "update")),),
)

# A StatefulSet needs its account, everything else can follow; so pods start as early as possible.
KINDS: Final = Kinds(
    (
        POOL,
        Kind(
            api_version="v1",
            kind="ServiceAccount",
            plural="serviceaccounts",
            rank=0,
            watched=True,
            urgent=True,
            shared=True,
            sparse=True,
            grants=OWN,
        ),
        Kind(
            api_version="v1",
            kind="ConfigMap",
            plural="configmaps",
            rank=0,
            watched=True,
            urgent=True,
            sparse=True,
            grants=OWN,
        ),
        Kind(
            api_version="apps/v1",
            kind="StatefulSet",
            plural="statefulsets",
            rank=1,
            watched=True,
            urgent=True,
            grants=OWN,
        ),
        Kind(
            api_version="v1",
            kind="Service",
            plural="services",
            rank=2,
            watched=True,
            grants=OWN,
        ),
        Kind(
            api_version="policy/v1",
            kind="PodDisruptionBudget",
            plural="poddisruptionbudgets",
            rank=3,
            watched=True,
            sparse=True,
            grants=OWN,
        ),
        POD,
        EVENT,
        LEASE,
    )
)
