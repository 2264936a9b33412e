"""The request runtime in the pod: an init container copies it to a volume that the stock vLLM image imports it from.

Its configuration is a ConfigMap, mounted without `subPath` so that running pods see a new one.
"""

from __future__ import annotations

from typing import Any, Final

from reasoningpool.api import names
from reasoningpool.render import paths
from reasoningpool.render.pod.security import container_security
from reasoningpool.resolution.types import EffectiveTier
from reasoningpool.vllm import runtime_contract as contract

INIT_CONTAINER: Final = "reasoningpool-runtime"
VOLUME: Final = "runtime"
CONFIG_VOLUME: Final = "runtime-config"
CONFIG_KEY: Final = "config.json"
PYTHON_PATH: Final = "PYTHONPATH"

_COPY_RESOURCES: Final = {
    "requests": {"cpu": "10m", "memory": "16Mi"},
    "limits": {"memory": "64Mi"},
}


def runtime_arguments(tier: EffectiveTier) -> tuple[str, ...]:
    """What makes vLLM load the runtime."""
    return () if tier.runtime is None else (f"--middleware={contract.MIDDLEWARE}",)


def runtime_environment(tier: EffectiveTier) -> dict[str, str]:
    """Variables of the engine's container."""
    if tier.runtime is None:
        return {}
    return {
        PYTHON_PATH: paths.RUNTIME,
        contract.CONFIG_VARIABLE: f"{paths.RUNTIME_CONFIG}/{CONFIG_KEY}",
        contract.STATE_DIR_VARIABLE: paths.RUNTIME_STATE,
    }


def runtime_volumes(pool: str, tier: EffectiveTier) -> list[dict[str, Any]]:
    """The package's volume and the configuration's."""
    if tier.runtime is None:
        return []
    config_map = {"name": names.runtime_config_name(pool, tier.name), "defaultMode": 0o444}
    return [{"name": VOLUME, "emptyDir": {}}, {"name": CONFIG_VOLUME, "configMap": config_map}]


def runtime_mounts(tier: EffectiveTier) -> list[dict[str, Any]]:
    """Mounts of the engine's container."""
    if tier.runtime is None:
        return []
    return [
        {"name": VOLUME, "mountPath": paths.RUNTIME, "readOnly": True},
        {"name": CONFIG_VOLUME, "mountPath": paths.RUNTIME_CONFIG, "readOnly": True},
    ]


def runtime_init_container(tier: EffectiveTier) -> list[dict[str, Any]]:
    """The container that brings the package."""
    if tier.runtime is None:
        return []
    return [
        {
            "name": INIT_CONTAINER,
            "image": tier.runtime.image,
            "imagePullPolicy": str(tier.engine.image_pull_policy),
            "args": [paths.RUNTIME],
            "resources": _COPY_RESOURCES,
            "volumeMounts": [{"name": VOLUME, "mountPath": paths.RUNTIME}],
            "securityContext": container_security(None, read_only_root=True),
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
    ]


def readiness_path(tier: EffectiveTier) -> str:
    """Where the kubelet asks: vLLM's own `/health` stays 200 while it drains, the runtime's does not."""
    return "/health" if tier.runtime is None else contract.READY_PATH
