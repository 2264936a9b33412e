"""Environment of the engine's container.

Every directory the engine or its libraries write to is on a mounted volume, so that it runs with any user
id and a read-only root file system (field report X07). A variable of the user's with the same name wins,
except for the two that hold secrets while their typed field is set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from reasoningpool.api.pod_overrides import EnvVar
from reasoningpool.api.spec_model import SecretKeyRef
from reasoningpool.render import paths
from reasoningpool.render.pod.runtime import PYTHON_PATH, runtime_environment
from reasoningpool.resolution.types import EffectiveTier

DIRECTORIES: Final = {
    "HOME": paths.HOME,
    "XDG_CONFIG_HOME": f"{paths.HOME}/.config",
    "XDG_CACHE_HOME": f"{paths.CACHE}/xdg",
    "HF_HOME": f"{paths.CACHE}/huggingface",
    "VLLM_CACHE_ROOT": f"{paths.CACHE}/vllm",
    "TRITON_CACHE_DIR": f"{paths.CACHE}/triton",
    "TORCHINDUCTOR_CACHE_DIR": f"{paths.CACHE}/torchinductor",
    "FLASHINFER_WORKSPACE_BASE": f"{paths.CACHE}/flashinfer",
    "CUDA_CACHE_PATH": f"{paths.CACHE}/cuda",
    "NUMBA_CACHE_DIR": f"{paths.CACHE}/numba",
    "TMPDIR": paths.TEMPORARY,
}
# Libraries look the user up by id, which has no entry in an image's /etc/passwd.
_USER: Final = {"USER": "engine", "LOGNAME": "engine"}
_PRIVACY: Final = {"VLLM_NO_USAGE_STATS": "1"}

API_KEY: Final = "VLLM_API_KEY"
HUB_TOKEN: Final = "HF_TOKEN"  # noqa: S105 - a variable's name


def engine_environment(tier: EffectiveTier) -> list[dict[str, Any]]:
    """The operator's variables, sorted by name."""
    plain = {**DIRECTORIES, **_USER, **_PRIVACY, **runtime_environment(tier)}
    if _is_offline(tier):
        plain["HF_HUB_OFFLINE"] = "1"
    variables: dict[str, dict[str, Any]] = {name: {"name": name, "value": value} for name, value in plain.items()}
    for name, ref in secret_variables(tier).items():
        variables[name] = {
            "name": name,
            "valueFrom": {"secretKeyRef": {"name": ref.name, "key": ref.key, "optional": False}},
        }
    return [variables[name] for name in sorted(variables)]


def secret_variables(tier: EffectiveTier) -> dict[str, SecretKeyRef]:
    """Variables that typed fields take from Secrets; they cannot be overridden."""
    refs: dict[str, SecretKeyRef] = {}
    if tier.engine.api_key_secret_ref is not None:
        refs[API_KEY] = tier.engine.api_key_secret_ref
    source = tier.model.source
    if source is not None and source.hugging_face is not None and source.hugging_face.token_secret_ref is not None:
        refs[HUB_TOKEN] = source.hugging_face.token_secret_ref
    return refs


def _is_offline(tier: EffectiveTier) -> bool:
    """Whether the engine has no reason to ask the hub: its weights are mounted and it drafts with no other model."""
    source = tier.model.source
    mounted = source is not None and source.hugging_face is None
    return mounted and (tier.speculative is None or tier.speculative.model is None)


def merge_environment(
    own: Sequence[dict[str, Any]], stated: Sequence[EnvVar], protected: Sequence[str]
) -> list[dict[str, Any]]:
    """The user's variables over ours by name, new ones after ours in the user's order."""
    merged = {variable["name"]: variable for variable in own}
    for variable in stated:
        if variable.name not in protected:
            merged[variable.name] = _joined(merged.get(variable.name), variable)
    return list(merged.values())


def _joined(own: dict[str, Any] | None, stated: EnvVar) -> dict[str, Any]:
    """The user's variable; a search path of ours stays in front of theirs, or the runtime would not be found."""
    rendered: dict[str, Any] = stated.model_dump(by_alias=True, exclude_none=True, mode="json")
    if own is not None and stated.name == PYTHON_PATH and "value" in rendered:
        rendered["value"] = f"{own['value']}:{rendered['value']}"
    return rendered
