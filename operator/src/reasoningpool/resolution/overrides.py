"""What podOverrides must not, or had better not, say, judged with what else is known of the tier."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from reasoningpool.api import names
from reasoningpool.api.findings import Findings
from reasoningpool.api.pod_overrides import ContainerOverride, PodOverrides
from reasoningpool.resolution import defaults
from reasoningpool.resolution.types import EffectiveAccelerator

_DEV_MODE: Final = "VLLM_SERVER_DEV_MODE"
# Extended resources that are devices to compute with, by the vendors' device plugins.
_DEVICES: Final = re.compile(
    r"nvidia\.com/(gpu|mig-).*|amd\.com/gpu.*|gpu\.intel\.com/.*|habana\.ai/.*|google\.com/tpu.*|aws\.amazon\.com/neuron.*"
)
# Variables that hold secrets, and the typed field where there is one.
_SECRETS: Final = {
    "VLLM_API_KEY": "engine.apiKeySecretRef",
    "HF_TOKEN": "model.source.huggingFace.tokenSecretRef",
    "HUGGING_FACE_HUB_TOKEN": "model.source.huggingFace.tokenSecretRef",
    "HUGGINGFACE_HUB_TOKEN": "model.source.huggingFace.tokenSecretRef",
}
_SECRET_NAME: Final = re.compile(
    r"(^|_)(TOKEN|PASSWORD|PASSWD|PASSPHRASE|SECRET|CREDENTIALS?|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY)$|^AWS_SESSION_TOKEN$",
    re.IGNORECASE,
)


def check_overrides(
    overrides: PodOverrides,
    path: str,
    *,
    accelerator: EffectiveAccelerator | None,
    accelerator_path: str,
    service_accounts: frozenset[str],
    findings: Findings,
) -> None:
    """Add what is wrong with a tier's podOverrides; `path` is theirs, `accelerator` None where it is unknown."""
    account = overrides.service_account_name
    if account is not None and account not in service_accounts:
        findings.error(
            f"{path}.serviceAccountName",
            f"{account!r} is not a service account that pools may use"
            " (--allowed-service-account); by default pools use an account of their own without rights",
        )
    for at, container in _containers(overrides, path):
        _check_variables(container, at, findings)
        _check_devices(container, at, accelerator, accelerator_path, findings)


def _containers(overrides: PodOverrides, path: str) -> Iterator[tuple[str, ContainerOverride]]:
    for field, containers in (("initContainers", overrides.init_containers), ("containers", overrides.containers)):
        for index, container in enumerate(containers or ()):
            yield f"{path}.{field}[{index}]", container


def _check_variables(container: ContainerOverride, path: str, findings: Findings) -> None:
    engine = container.name == names.ENGINE_CONTAINER
    for index, variable in enumerate(container.env or ()):
        if engine and variable.name == _DEV_MODE:
            findings.warning(
                f"{path}.env[{index}]", f"{_DEV_MODE} opens control endpoints that the API key does not protect"
            )
        if variable.value and (variable.name in _SECRETS or _SECRET_NAME.search(variable.name)):
            field = _SECRETS.get(variable.name) if engine else None
            use = f"set {field}" if field else "use valueFrom.secretKeyRef"
            findings.warning(
                f"{path}.env[{index}].value",
                f"{variable.name} looks like a secret that anyone who may read pools or pods can read: {use} instead",
            )


def _check_devices(
    container: ContainerOverride,
    path: str,
    accelerator: EffectiveAccelerator | None,
    accelerator_path: str,
    findings: Findings,
) -> None:
    """The engine's devices follow from the accelerator; those of a sidecar are the user's affair."""
    if container.resources is None or container.name != names.ENGINE_CONTAINER:
        return
    own = accelerator.resource_name if accelerator else defaults.GPU_RESOURCE
    for kind, amounts in (("requests", container.resources.requests), ("limits", container.resources.limits)):
        for name in amounts or ():
            if name == own or _DEVICES.fullmatch(name):
                findings.error(
                    f"{path}.resources.{kind}",
                    f"{name} cannot be set here, since the sizing counts the devices: set"
                    f" {accelerator_path}.perReplica, and {accelerator_path}.custom.resourceName for another resource",
                )
