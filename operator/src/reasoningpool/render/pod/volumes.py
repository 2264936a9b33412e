"""Volumes of the pod and what the engine mounts of them.

    cache          /cache       node disk, a shared claim, or a claim per replica (then it is no pod volume but a
                                claim template of the StatefulSet)
    home, tmp      /home/engine, /tmp   node disk, private to the pod
    shm            /dev/shm     memory
    weights        /models      read-only: a claim or an OCI image
    chat-template  /etc/reasoningpool/chat-template
    runtime, runtime-config   the request runtime's package and configuration

An inline chat template travels in an annotation of the pod and is mounted from there: it needs no object of
its own, and a pod always has exactly the template of its revision.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from reasoningpool.api import names
from reasoningpool.api.pod_overrides import EmptyDirMedium, Volume, VolumeMount
from reasoningpool.api.scalars import parse_quantity
from reasoningpool.api.spec_engine import ChatTemplate
from reasoningpool.api.spec_model import PullPolicy
from reasoningpool.render import paths
from reasoningpool.render.pod import runtime
from reasoningpool.render.pod.resources import quantity
from reasoningpool.resolution.types import EffectiveTier

CACHE: Final = "cache"
ANNOTATION_CHAT_TEMPLATE: Final = f"{names.GROUP}/chat-template"

OWN_NAMES: Final = frozenset(
    {CACHE, "home", "tmp", "shm", "weights", "chat-template", runtime.VOLUME, runtime.CONFIG_VOLUME}
)

# Annotations of an object may hold 256 KiB together; a user's own may take half of it.
_MOST_TEMPLATE_BYTES: Final = 112 * 1024

Mount = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Storage:
    """The pod's volumes, the engine's mounts, the StatefulSet's claim templates, and the memory /dev/shm may take."""

    volumes: list[dict[str, Any]]
    mounts: list[Mount]
    claim_templates: list[dict[str, Any]]
    shared_memory: int


def storage(
    pool: str, tier: EffectiveTier, shared_memory: int, stated: Sequence[VolumeMount], used_elsewhere: frozenset[str]
) -> Storage:
    """Volumes and mounts with the user's merged in: volumes by name, mounts by path.

    Each path is mounted once. A volume of ours that nothing mounts any more is left out; `used_elsewhere`
    are volume names that other containers mount.
    """
    overrides = {volume.name: volume for volume in (tier.overrides.volumes if tier.overrides else None) or ()}
    own = {volume["name"]: volume for volume in _own_volumes(pool, tier, shared_memory)}
    mounts = {mount["mountPath"]: mount for mount in _own_mounts(tier)}
    for mount in stated:
        path = posixpath.normpath(mount.mount_path)
        mounts[path] = {**mount.model_dump(by_alias=True, exclude_none=True), "mountPath": path}
    volumes = {**own, **{name: _stated_volume(volume) for name, volume in overrides.items()}}
    used = {mount["name"] for mount in mounts.values()} | used_elsewhere
    return Storage(
        volumes=[volume for name, volume in volumes.items() if name in used or name not in OWN_NAMES],
        mounts=list(mounts.values()),
        claim_templates=_claim_templates(tier) if CACHE in used and CACHE not in overrides else [],
        shared_memory=_shared_memory(mounts[paths.SHARED_MEMORY]["name"], overrides, shared_memory),
    )


def check_chat_template(template: ChatTemplate) -> str | None:
    """Why an inline chat template cannot travel with the pod, None if it can."""
    size = len((template.inline or "").encode())
    if size <= _MOST_TEMPLATE_BYTES:
        return None
    return f"is {size} bytes, more than {_MOST_TEMPLATE_BYTES}; put it into a ConfigMap and use configMapRef"


def _shared_memory(volume: str, overrides: dict[str, Volume], own: int) -> int:
    """Memory that whatever is mounted at /dev/shm may take."""
    if volume not in overrides:
        return own if volume == "shm" else 0
    directory = overrides[volume].empty_dir
    if directory is None or directory.medium is not EmptyDirMedium.MEMORY or directory.size_limit is None:
        return 0
    return parse_quantity(directory.size_limit)


def _own_volumes(pool: str, tier: EffectiveTier, shared_memory: int) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = []
    cache = tier.model.cache
    if cache is None:
        volumes.append({"name": CACHE, "emptyDir": {}})
    elif cache.claim_name is not None:
        volumes.append({"name": CACHE, "persistentVolumeClaim": {"claimName": cache.claim_name}})
    volumes += [
        {"name": "home", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": quantity(shared_memory)}},
    ]
    source = tier.model.source
    if source is not None and source.persistent_volume_claim is not None:
        claim = {"claimName": source.persistent_volume_claim.claim_name, "readOnly": True}
        volumes.append({"name": "weights", "persistentVolumeClaim": claim})
    if source is not None and source.image is not None:
        image = {
            "reference": source.image.reference,
            "pullPolicy": str(source.image.pull_policy or PullPolicy.IF_NOT_PRESENT),
        }
        volumes.append({"name": "weights", "image": image})
    template = tier.engine.chat_template
    if template is not None and template.config_map_ref is not None:
        items = [{"key": template.config_map_ref.key, "path": paths.CHAT_TEMPLATE_NAME}]
        config_map = {"name": template.config_map_ref.name, "items": items, "defaultMode": 0o444}
        volumes.append({"name": "chat-template", "configMap": config_map})
    elif template is not None:
        field = {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{ANNOTATION_CHAT_TEMPLATE}']"}
        file = {"path": paths.CHAT_TEMPLATE_NAME, "fieldRef": field}
        volumes.append({"name": "chat-template", "downwardAPI": {"items": [file], "defaultMode": 0o444}})
    return [*volumes, *runtime.runtime_volumes(pool, tier)]


def _own_mounts(tier: EffectiveTier) -> list[Mount]:
    mounts: list[Mount] = [
        {"name": CACHE, "mountPath": paths.CACHE},
        {"name": "home", "mountPath": paths.HOME},
        {"name": "tmp", "mountPath": paths.TEMPORARY},
        {"name": "shm", "mountPath": paths.SHARED_MEMORY},
    ]
    if tier.model.source is not None and tier.model.source.hugging_face is None:
        mounts.append({"name": "weights", "mountPath": paths.WEIGHTS, "readOnly": True})
    if tier.engine.chat_template is not None:
        mounts.append({"name": "chat-template", "mountPath": paths.CHAT_TEMPLATE, "readOnly": True})
    return [*mounts, *runtime.runtime_mounts(tier)]


def _claim_templates(tier: EffectiveTier) -> list[dict[str, Any]]:
    cache = tier.model.cache
    if cache is None or cache.claim_template is None:
        return []
    template = cache.claim_template
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": quantity(parse_quantity(template.size))}},
        "volumeMode": "Filesystem",
    }
    if template.storage_class_name is not None:
        spec["storageClassName"] = template.storage_class_name
    return [{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CACHE}, "spec": spec}]


def retention(tier: EffectiveTier) -> dict[str, str]:
    """What becomes of claims per replica: kept warm through a scale-down, removed with the tier unless retained."""
    template = tier.model.cache.claim_template if tier.model.cache else None
    removed = template is not None and not template.retain
    return {"whenDeleted": "Delete" if removed else "Retain", "whenScaled": "Retain"}


def _stated_volume(volume: Volume) -> dict[str, Any]:
    """A user's volume with the server's defaults written out."""
    rendered: dict[str, Any] = volume.model_dump(by_alias=True, exclude_none=True, mode="json")
    for kind in ("configMap", "secret"):
        if kind in rendered:
            rendered[kind].setdefault("defaultMode", 0o644)
    return rendered
