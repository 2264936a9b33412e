"""The typed subset of a pod that `podOverrides` may change.

What is not here cannot be set: host paths, host namespaces, privileged containers and added
capabilities are refused by the schema itself. Lists are merged by their key (name, mountPath), maps by
key, everything else replaces.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from reasoningpool.api.base import ApiModel, Rule, at_most_one, exactly_one, unique
from reasoningpool.api.scalars import (
    EnvName,
    Flag,
    ImageReference,
    LabelKey,
    LabelValue,
    MountPath,
    ObjectName,
    Quantity,
    RelativePath,
    ResourceName,
    SecretKey,
    Size,
    exact_quantity,
)

AnnotationValue = Annotated[str, Field(max_length=4096)]
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=32)]
Id = Annotated[int, Field(strict=True, ge=0, le=4_294_967_295)]
Count = Annotated[int, Field(strict=True, ge=1, le=86_400)]


def _merged_by(key: str, maximum: int) -> Any:
    return Field(
        max_length=maximum,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]},
    )


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


class ObjectKeyRef(ApiModel):
    """A key of a Secret or ConfigMap."""

    name: ObjectName
    key: SecretKey
    optional: Flag | None = None


class FieldRef(ApiModel):
    """A field of the pod, such as status.podIP."""

    field_path: Annotated[
        str, Field(min_length=1, max_length=256, pattern=r"^(metadata|spec|status)\.[A-Za-z0-9./'\[\]_-]+$")
    ]


class EnvSource(ApiModel):
    """Where an environment variable comes from; exactly one."""

    RULES: ClassVar[tuple[Rule, ...]] = (exactly_one("secret_key_ref", "config_map_key_ref", "field_ref"),)

    secret_key_ref: ObjectKeyRef | None = None
    config_map_key_ref: ObjectKeyRef | None = None
    field_ref: FieldRef | None = None


class EnvVar(ApiModel):
    """An environment variable. Put secrets into valueFrom, never into value."""

    RULES: ClassVar[tuple[Rule, ...]] = (at_most_one("value", "value_from"),)

    name: EnvName
    value: Annotated[str, Field(max_length=4096)] | None = None
    value_from: EnvSource | None = None


class ObjectRef(ApiModel):
    """A Secret or ConfigMap by name."""

    name: ObjectName
    optional: Flag | None = None


class EnvFromSource(ApiModel):
    """All keys of a Secret or ConfigMap as environment variables."""

    prefix: EnvName | None = None
    secret_ref: ObjectRef | None = None
    config_map_ref: ObjectRef | None = None


class ResourceRequirements(ApiModel):
    """Requests and limits; accelerators are set by the operator."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits) ||"
            " quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",
            holds=lambda self: all(
                exact_quantity(amount) <= exact_quantity((self.limits or {}).get(name, amount))
                for name, amount in (self.requests or {}).items()
            ),
            message="a request must not exceed its limit",
            field=".requests",
        ),
    )

    requests: Annotated[dict[ResourceName, Quantity], Field(max_length=16)] | None = None
    limits: Annotated[dict[ResourceName, Quantity], Field(max_length=16)] | None = None


class VolumeMount(ApiModel):
    """A mount of one of the pod's volumes."""

    name: ObjectName
    mount_path: MountPath
    sub_path: RelativePath | None = None
    read_only: Flag | None = None


class KeyToPath(ApiModel):
    """A key of a Secret or ConfigMap as a file."""

    key: SecretKey
    path: RelativePath


class EmptyDirMedium(StrEnum):
    """What an emptyDir is made of."""

    MEMORY = "Memory"
    DISK = ""


class EmptyDirVolume(ApiModel):
    """A directory that lives as long as the pod."""

    medium: EmptyDirMedium | None = None
    size_limit: Size | None = None


class ClaimVolume(ApiModel):
    """An existing claim."""

    claim_name: ObjectName
    read_only: Flag | None = None


class ConfigMapVolume(ApiModel):
    """A ConfigMap as files."""

    name: ObjectName
    items: Annotated[tuple[KeyToPath, ...], Field(max_length=32)] | None = None
    optional: Flag | None = None


class SecretVolume(ApiModel):
    """A Secret as files."""

    secret_name: ObjectName
    items: Annotated[tuple[KeyToPath, ...], Field(max_length=32)] | None = None
    optional: Flag | None = None


class Volume(ApiModel):
    """A volume; host paths are not possible."""

    RULES: ClassVar[tuple[Rule, ...]] = (exactly_one("empty_dir", "persistent_volume_claim", "config_map", "secret"),)

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    empty_dir: EmptyDirVolume | None = None
    persistent_volume_claim: ClaimVolume | None = None
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None


class ProbeOverride(ApiModel):
    """Fields of a probe that replace the operator's; the path and port stay."""

    initial_delay_seconds: Annotated[int, Field(strict=True, ge=0, le=86_400)] | None = None
    period_seconds: Count | None = None
    timeout_seconds: Count | None = None
    failure_threshold: Annotated[int, Field(strict=True, ge=1, le=100_000)] | None = None
    success_threshold: Annotated[int, Field(strict=True, ge=1, le=100)] | None = None


class SeccompType(StrEnum):
    """Seccomp profiles."""

    RUNTIME_DEFAULT = "RuntimeDefault"
    LOCALHOST = "Localhost"


class SeccompProfile(ApiModel):
    """A seccomp profile."""

    type: SeccompType
    localhost_profile: RelativePath | None = None


class PodSecurityContext(ApiModel):
    """Users and groups of the pod."""

    run_as_user: Id | None = None
    run_as_group: Id | None = None
    run_as_non_root: Flag | None = None
    fs_group: Id | None = None
    supplemental_groups: Annotated[tuple[Id, ...], Field(max_length=32)] | None = None
    seccomp_profile: SeccompProfile | None = None


class SecurityContext(ApiModel):
    """Security of a container; nothing here can add privileges."""

    run_as_user: Id | None = None
    run_as_group: Id | None = None
    run_as_non_root: Flag | None = None
    read_only_root_filesystem: Flag | None = None
    seccomp_profile: SeccompProfile | None = None


class ContainerRestartPolicy(StrEnum):
    """Makes an init container a sidecar."""

    ALWAYS = "Always"


class ContainerPort(ApiModel):
    """A port of a container."""

    name: Annotated[str, Field(min_length=1, max_length=15, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] | None = None
    container_port: Annotated[int, Field(strict=True, ge=1, le=65_535)]


class ContainerOverride(ApiModel):
    """A container: `engine` is merged into the vLLM container, any other name is added as a sidecar."""

    RULES: ClassVar[tuple[Rule, ...]] = (unique("env", "name"), unique("volume_mounts", "mount_path"))

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    image: ImageReference | None = None
    command: Annotated[tuple[Annotated[str, Field(max_length=4096)], ...], Field(max_length=64)] | None = None
    args: Annotated[tuple[Annotated[str, Field(max_length=4096)], ...], Field(max_length=64)] | None = None
    env: Annotated[tuple[EnvVar, ...], _merged_by("name", 64)] | None = None
    env_from: Annotated[tuple[EnvFromSource, ...], Field(max_length=16)] | None = None
    resources: ResourceRequirements | None = None
    volume_mounts: Annotated[tuple[VolumeMount, ...], _merged_by("mountPath", 32)] | None = None
    ports: Annotated[tuple[ContainerPort, ...], Field(max_length=16)] | None = None
    security_context: SecurityContext | None = None
    restart_policy: ContainerRestartPolicy | None = None


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


class PodOverrides(ApiModel):
    """Changes to the rendered pod, merged by name."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        unique("volumes", "name"),
        unique("init_containers", "name"),
        unique("containers", "name"),
    )

    labels: Labels | None = None
    """Labels added to the pods."""
    annotations: Annotated[dict[LabelKey, AnnotationValue], Field(max_length=32)] | None = None
    """Annotations added to the pods."""
    node_selector: Labels | None = None
    """Merged over the accelerator's."""
    affinity: Affinity | None = None
    """Placement rules."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=32)] | None = None
    """Added to the accelerator's."""
    topology_spread_constraints: Annotated[tuple[TopologySpreadConstraint, ...], Field(max_length=8)] | None = None
    """Replaces the operator's."""
    volumes: Annotated[tuple[Volume, ...], _merged_by("name", 32)] | None = None
    """Further volumes, or replacements by name."""
    init_containers: Annotated[tuple[ContainerOverride, ...], _merged_by("name", 8)] | None = None
    """Run before the engine, or beside it with restartPolicy Always."""
    containers: Annotated[tuple[ContainerOverride, ...], _merged_by("name", 8)] | None = None
    """`engine` is merged into the vLLM container; other names are added."""
    startup_probe: ProbeOverride | None = None
    """Fields of the engine's startup probe."""
    readiness_probe: ProbeOverride | None = None
    """Fields of the engine's readiness probe."""
    liveness_probe: ProbeOverride | None = None
    """Fields of the engine's liveness probe."""
    pre_stop_seconds: Annotated[int, Field(strict=True, ge=0, le=3600)] | None = None
    """Seconds between the end of routing and SIGTERM."""
    termination_grace_period_seconds: Annotated[int, Field(strict=True, ge=1, le=604_800)] | None = None
    """Raised, with a warning, to what the budgets need."""
    security_context: PodSecurityContext | None = None
    """Users and groups of the pod."""
    service_account_name: ObjectName | None = None
    """Only names the operator's settings allow."""
    automount_service_account_token: Flag | None = None
    """Default: false."""
    runtime_class_name: ObjectName | None = None
    """Runtime class, such as nvidia."""
    priority_class_name: ObjectName | None = None
    """Priority class."""
    scheduler_name: ObjectName | None = None
    """Scheduler."""
    shared_memory: Size | None = None
    """Size of /dev/shm, counted in the pod's memory."""
