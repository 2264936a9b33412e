"""The typed subset of a pod that `podOverrides` may change.

What is not here cannot be set: host paths, host namespaces, privileged containers and added
capabilities are refused by the schema itself. Lists are merged by their key (name, mountPath), maps by
key, everything else replaces.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from reasoningpool.api.base import ApiModel, Rule, at_most_one, exactly_one, list_map, unique
from reasoningpool.api.pod_placement import Affinity, Labels, Toleration, TopologySpreadConstraint
from reasoningpool.api.scalars import (
    EnvName,
    Flag,
    ImageReference,
    LabelKey,
    Memory,
    MountPath,
    ObjectName,
    Quantity,
    RelativePath,
    ResourceName,
    SecretKey,
    Storage,
    exact_quantity,
    free_text,
)

AnnotationValue = Annotated[str, free_text(4096)]
Id = Annotated[int, Field(strict=True, ge=0, le=4_294_967_295)]
Count = Annotated[int, Field(strict=True, ge=1, le=86_400)]


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
    value: Annotated[str, free_text(4096)] | None = None
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
    size_limit: Storage | None = None


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
    command: Annotated[tuple[Annotated[str, free_text(4096)], ...], Field(max_length=64)] | None = None
    args: Annotated[tuple[Annotated[str, free_text(4096)], ...], Field(max_length=64)] | None = None
    env: Annotated[tuple[EnvVar, ...], list_map(maximum=64)] | None = None
    env_from: Annotated[tuple[EnvFromSource, ...], Field(max_length=16)] | None = None
    resources: ResourceRequirements | None = None
    volume_mounts: Annotated[tuple[VolumeMount, ...], list_map(maximum=32, key="mountPath")] | None = None
    ports: Annotated[tuple[ContainerPort, ...], Field(max_length=16)] | None = None
    security_context: SecurityContext | None = None
    restart_policy: ContainerRestartPolicy | None = None


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
    volumes: Annotated[tuple[Volume, ...], list_map(maximum=32)] | None = None
    """Further volumes, or replacements by name."""
    init_containers: Annotated[tuple[ContainerOverride, ...], list_map(maximum=8)] | None = None
    """Run before the engine, or beside it with restartPolicy Always."""
    containers: Annotated[tuple[ContainerOverride, ...], list_map(maximum=8)] | None = None
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
    shared_memory: Memory | None = None
    """Size of /dev/shm, counted in the pod's memory."""
