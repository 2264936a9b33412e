"""The pod template of a tier."""

from __future__ import annotations

from typing import Any

from reasoningpool.api import names
from reasoningpool.api.findings import Finding
from reasoningpool.api.pod_overrides import ContainerOverride, PodOverrides
from reasoningpool.render.metadata import PoolIdentity, tier_labels
from reasoningpool.render.pod.arguments import COMMAND, engine_arguments
from reasoningpool.render.pod.environment import engine_environment, merge_environment, secret_variables
from reasoningpool.render.pod.lifecycle import Shutdown, shutdown
from reasoningpool.render.pod.pod_overrides import merge_metadata, override_warnings, side_container
from reasoningpool.render.pod.probes import probes
from reasoningpool.render.pod.resources import engine_resources, shared_memory_bytes
from reasoningpool.render.pod.runtime import runtime_init_container
from reasoningpool.render.pod.scheduling import scheduling
from reasoningpool.render.pod.security import container_security, pod_security
from reasoningpool.render.pod.volumes import ANNOTATION_CHAT_TEMPLATE, Storage, storage
from reasoningpool.render.workload.service import ROUTABLE
from reasoningpool.render.workload.service_account import service_account_name
from reasoningpool.resolution.types import EffectiveTier
from reasoningpool.sizing.types import SizingPlan

Rendering = tuple[dict[str, Any], Storage, tuple[Finding, ...]]


def pod_template(pool: PoolIdentity, tier: EffectiveTier, plan: SizingPlan, revision: str) -> Rendering:
    """The pod template, the storage it needs, and warnings."""
    overrides = tier.overrides or PodOverrides()
    engine, sidecars = split_containers(overrides)
    stated = [side_container(container) for container in overrides.init_containers or ()]
    initial = [*runtime_init_container(tier), *stated]
    beside = [side_container(container) for container in sidecars]
    size, shm_warning = shared_memory_bytes(tier)
    used = frozenset(mount["name"] for container in (*initial, *beside) for mount in container.get("volumeMounts", ()))
    store = storage(pool.name, tier, size, (engine.volume_mounts if engine else None) or (), used)
    stop = shutdown(tier, plan)
    container, probe_warnings = _engine(tier, plan, engine, store, stop)
    metadata, label_warnings = merge_metadata(tier, _labels(pool, tier), _annotations(tier, revision))
    spec: dict[str, Any] = {
        "serviceAccountName": overrides.service_account_name or service_account_name(pool.name),
        "automountServiceAccountToken": bool(overrides.automount_service_account_token),
        # A Service called vllm-x would set VLLM_X_PORT, and vLLM reads what starts with VLLM_ (field report R17).
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": stop.grace_period_seconds,
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": overrides.scheduler_name or "default-scheduler",
        "securityContext": pod_security(overrides.security_context),
        **scheduling(pool, tier),
        "containers": [container, *beside],
        "volumes": store.volumes,
    }
    if initial:
        spec["initContainers"] = initial
    if tier.engine.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in tier.engine.image_pull_secrets]
    if overrides.runtime_class_name is not None:
        spec["runtimeClassName"] = overrides.runtime_class_name
    if overrides.priority_class_name is not None:
        spec["priorityClassName"] = overrides.priority_class_name
    warnings = (*([shm_warning] if shm_warning else []), *stop.warnings, *probe_warnings, *label_warnings)
    return {"metadata": metadata, "spec": spec}, store, (*warnings, *override_warnings(tier))


def split_containers(overrides: PodOverrides) -> tuple[ContainerOverride | None, list[ContainerOverride]]:
    """The override of the engine's container, and the sidecars."""
    containers = overrides.containers or ()
    engine = next((container for container in containers if container.name == names.ENGINE_CONTAINER), None)
    return engine, [container for container in containers if container.name != names.ENGINE_CONTAINER]


def _labels(pool: PoolIdentity, tier: EffectiveTier) -> dict[str, str]:
    return {**tier_labels(pool, tier.name), names.LABEL_ROUTABLE: ROUTABLE}


def _annotations(tier: EffectiveTier, revision: str) -> dict[str, str]:
    annotations = {names.ANNOTATION_REVISION: revision}
    if tier.engine.chat_template is not None and tier.engine.chat_template.inline is not None:
        annotations[ANNOTATION_CHAT_TEMPLATE] = tier.engine.chat_template.inline
    return annotations


def _engine(
    tier: EffectiveTier, plan: SizingPlan, override: ContainerOverride | None, store: Storage, stop: Shutdown
) -> tuple[dict[str, Any], list[Finding]]:
    """The engine's container; command and arguments are the operator's, the rest merges."""
    stated = override or ContainerOverride(name=names.ENGINE_CONTAINER)
    checks, warnings = probes(tier, plan, stop.pre_stop_seconds)
    port = {"name": names.ENGINE_PORT_NAME, "containerPort": names.ENGINE_PORT, "protocol": "TCP"}
    further = [
        {**extra.model_dump(by_alias=True, exclude_none=True), "protocol": "TCP"}
        for extra in stated.ports or ()
        if extra.container_port != names.ENGINE_PORT
    ]
    container: dict[str, Any] = {
        "name": names.ENGINE_CONTAINER,
        "image": stated.image or tier.engine.image,
        "imagePullPolicy": str(tier.engine.image_pull_policy),
        "command": list(COMMAND),
        "args": list(engine_arguments(tier, plan)),
        "ports": [port, *further],
        "env": merge_environment(engine_environment(tier), stated.env or (), tuple(secret_variables(tier))),
        "resources": engine_resources(tier, plan, store.shared_memory),
        "volumeMounts": store.mounts,
        **checks,
        "securityContext": container_security(stated.security_context, read_only_root=True),
        "terminationMessagePath": "/dev/termination-log",
        # The engine's last words reach the pod's status.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if stated.env_from:
        container["envFrom"] = [entry.model_dump(by_alias=True, exclude_none=True) for entry in stated.env_from]
    if stop.pre_stop_seconds > 0:
        container["lifecycle"] = {"preStop": {"sleep": {"seconds": stop.pre_stop_seconds}}}
    return container, warnings
