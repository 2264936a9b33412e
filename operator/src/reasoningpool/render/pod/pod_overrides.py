"""Merging the user's pod overrides: what merges by name, what stays ours, and what is refused.

`check_pod_overrides` finds what cannot be honoured (the spec is not accepted then); rendering leaves such
parts out, so that it never fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from reasoningpool.api import names
from reasoningpool.api.findings import Finding, error
from reasoningpool.api.pod_overrides import ContainerOverride, PodOverrides, ProbeOverride
from reasoningpool.render.pod.doubts import override_warning
from reasoningpool.render.pod.environment import secret_variables
from reasoningpool.render.pod.security import container_security
from reasoningpool.render.pod.volumes import OWN_NAMES
from reasoningpool.resolution.types import EffectiveTier

# Labels that selectors and watches rely on; all of our own group as well.
_PROTECTED: Final = frozenset({names.LABEL_MANAGED_BY})


def check_pod_overrides(overrides: PodOverrides) -> tuple[Finding, ...]:
    """What in the overrides has to be refused; paths are those below podOverrides."""
    return tuple(
        finding
        for found in (_containers(overrides), _init_containers(overrides), _probes(overrides), _mounts(overrides))
        for finding in found
    )


def _containers(overrides: PodOverrides) -> Iterator[Finding]:
    for index, container in enumerate(overrides.containers or ()):
        path = f"containers[{index}]"
        if container.restart_policy is not None:
            yield error(f"{path}.restartPolicy", "is for initContainers only, where it makes a sidecar")
        if container.name != names.ENGINE_CONTAINER:
            if container.image is None:
                yield error(f"{path}.image", f"is required for the added container {container.name!r}")
            continue
        if container.command is not None:
            yield error(
                f"{path}.command",
                "the engine's command is fixed: it starts vllm serve with the derived limits",
            )
        if container.args is not None:
            yield error(f"{path}.args", "the engine's arguments are derived: use engine.extraArgs for others")


def _init_containers(overrides: PodOverrides) -> Iterator[Finding]:
    others = {container.name for container in overrides.containers or ()} | {names.ENGINE_CONTAINER}
    for index, container in enumerate(overrides.init_containers or ()):
        path = f"initContainers[{index}]"
        if container.image is None:
            yield error(f"{path}.image", f"is required for the init container {container.name!r}")
        if container.name in others:
            yield error(f"{path}.name", f"{container.name!r} is the name of another container of the pod")


def _probes(overrides: PodOverrides) -> Iterator[Finding]:
    stated: dict[str, ProbeOverride | None] = {
        "startupProbe": overrides.startup_probe,
        "livenessProbe": overrides.liveness_probe,
    }
    for name, probe in stated.items():
        if probe is not None and (probe.success_threshold or 1) != 1:
            yield error(f"{name}.successThreshold", "must be 1: only the readiness probe may have more")


def _mounts(overrides: PodOverrides) -> Iterator[Finding]:
    volumes = {volume.name for volume in overrides.volumes or ()} | OWN_NAMES
    named = (("initContainers", overrides.init_containers), ("containers", overrides.containers))
    for field, containers in named:
        for index, container in enumerate(containers or ()):
            for number, mount in enumerate(container.volume_mounts or ()):
                path = f"{field}[{index}].volumeMounts[{number}]"
                if mount.name not in volumes:
                    yield error(f"{path}.name", f"there is no volume {mount.name!r}: add it to volumes")
                if ".." in (mount.sub_path or "").split("/"):
                    yield error(f"{path}.subPath", "must not contain '..'")


def override_warnings(tier: EffectiveTier) -> tuple[Finding, ...]:
    """Overrides of the engine's environment that have no effect."""
    secrets = secret_variables(tier)
    fields = {"VLLM_API_KEY": "engine.apiKeySecretRef", "HF_TOKEN": "model.source.huggingFace.tokenSecretRef"}
    return tuple(
        override_warning(
            tier,
            "containers",
            f"podOverrides.containers[engine].env: {variable.name} comes from {fields[variable.name]} and stays as it"
            " is",
        )
        for container in (tier.overrides.containers if tier.overrides else None) or ()
        if container.name == names.ENGINE_CONTAINER
        for variable in container.env or ()
        if variable.name in secrets
    )


def merge_metadata(
    tier: EffectiveTier, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> tuple[dict[str, Any], list[Finding]]:
    """The pod's labels and annotations with the user's added; those that selectors rely on stay ours."""
    overrides = tier.overrides or PodOverrides()
    warnings: list[Finding] = []
    merged: dict[str, Any] = {}
    for field, own, stated in (
        ("labels", labels, overrides.labels or {}),
        ("annotations", annotations, overrides.annotations or {}),
    ):
        kept = {key: value for key, value in stated.items() if not _is_protected(key)}
        warnings += [
            override_warning(
                tier,
                field,
                f"podOverrides.{field}: {key} is set by the operator and cannot be overridden (LabelIgnored)",
            )
            for key in sorted(stated.keys() - kept.keys())
        ]
        merged[field] = dict(sorted({**own, **kept}.items()))
    return merged, warnings


def _is_protected(key: str) -> bool:
    return key in _PROTECTED or key.startswith(f"{names.GROUP}/")


def side_container(container: ContainerOverride) -> dict[str, Any]:
    """An added container: as stated, without privileges, with the server's defaults written out."""
    rendered: dict[str, Any] = container.model_dump(by_alias=True, exclude_none=True, mode="json")
    rendered["securityContext"] = container_security(container.security_context, read_only_root=False)
    rendered.setdefault("terminationMessagePath", "/dev/termination-log")
    rendered.setdefault("terminationMessagePolicy", "File")
    for port in rendered.get("ports", ()):
        port.setdefault("protocol", "TCP")
    return rendered
