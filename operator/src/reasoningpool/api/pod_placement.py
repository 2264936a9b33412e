"""Where pods may run: tolerations, affinities and spread constraints, as in a pod."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from reasoningpool.api.base import ApiModel
from reasoningpool.api.scalars import LabelKey, LabelValue, ObjectName

Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=32)]


class TolerationOperator(StrEnum):
    """How a toleration's value is compared."""

    EXISTS = "Exists"
    EQUAL = "Equal"


class TaintEffect(StrEnum):
    """Effects of a taint."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Toleration(ApiModel):
    """A toleration, as in a pod."""

    key: LabelKey | None = None
    operator: TolerationOperator | None = None
    value: LabelValue | None = None
    effect: TaintEffect | None = None
    toleration_seconds: Annotated[int, Field(strict=True, ge=0, le=86_400)] | None = None


class SelectorOperator(StrEnum):
    """Operators of a label expression."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


class LabelExpression(ApiModel):
    """A label expression."""

    key: LabelKey
    operator: SelectorOperator
    values: Annotated[tuple[LabelValue, ...], Field(max_length=32)] | None = None


class LabelSelector(ApiModel):
    """A label selector."""

    match_labels: Labels | None = None
    match_expressions: Annotated[tuple[LabelExpression, ...], Field(max_length=16)] | None = None


class NodeSelectorTerm(ApiModel):
    """Expressions a node must match together."""

    match_expressions: Annotated[tuple[LabelExpression, ...], Field(max_length=16)] | None = None


class NodeSelector(ApiModel):
    """Terms of which a node must match one."""

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], Field(min_length=1, max_length=16)]


class PreferredSchedulingTerm(ApiModel):
    """A node preference."""

    weight: Annotated[int, Field(strict=True, ge=1, le=100)]
    preference: NodeSelectorTerm


class NodeAffinity(ApiModel):
    """Rules about nodes."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: (
        Annotated[tuple[PreferredSchedulingTerm, ...], Field(max_length=16)] | None
    ) = None


class PodAffinityTerm(ApiModel):
    """Pods to be near to or away from."""

    topology_key: LabelKey
    label_selector: LabelSelector | None = None
    namespaces: Annotated[tuple[ObjectName, ...], Field(max_length=16)] | None = None


class WeightedPodAffinityTerm(ApiModel):
    """A preference about pods."""

    weight: Annotated[int, Field(strict=True, ge=1, le=100)]
    pod_affinity_term: PodAffinityTerm


class PodAffinity(ApiModel):
    """Rules about other pods."""

    required_during_scheduling_ignored_during_execution: (
        Annotated[tuple[PodAffinityTerm, ...], Field(max_length=16)] | None
    ) = None
    preferred_during_scheduling_ignored_during_execution: (
        Annotated[tuple[WeightedPodAffinityTerm, ...], Field(max_length=16)] | None
    ) = None


class Affinity(ApiModel):
    """Placement rules, as in a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class WhenUnsatisfiable(StrEnum):
    """What a spread constraint does when it cannot be met."""

    DO_NOT_SCHEDULE = "DoNotSchedule"
    SCHEDULE_ANYWAY = "ScheduleAnyway"


class TopologySpreadConstraint(ApiModel):
    """A spread constraint; without a selector it gets the tier's own labels."""

    max_skew: Annotated[int, Field(strict=True, ge=1, le=1000)]
    topology_key: LabelKey
    when_unsatisfiable: WhenUnsatisfiable
    label_selector: LabelSelector | None = None
    match_label_keys: Annotated[tuple[LabelKey, ...], Field(max_length=8)] | None = None
