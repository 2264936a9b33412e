"""Security contexts: the restricted Pod Security profile by default.

The default user id is 1000, since images of vLLM run as root and a name would have to be in the image.
A user's fields replace ours one by one; nothing in the typed overrides can add a privilege.
"""

from __future__ import annotations

from typing import Any, Final

from reasoningpool.api.pod_overrides import PodSecurityContext, SecurityContext

USER_ID: Final = 1000

_POD: Final = {
    "runAsNonRoot": True,
    "runAsUser": USER_ID,
    "runAsGroup": USER_ID,
    "fsGroup": USER_ID,
    # Changing the owner of every file on a large cache volume at each start takes minutes.
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}


def pod_security(stated: PodSecurityContext | None) -> dict[str, Any]:
    """The pod's security context."""
    return {**_POD, **(_dump(stated) if stated else {})}


def container_security(stated: SecurityContext | None, *, read_only_root: bool) -> dict[str, Any]:
    """A container's security context; sidecars choose themselves whether their root file system is read-only."""
    own: dict[str, Any] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    if read_only_root:
        own["readOnlyRootFilesystem"] = True
    return {**own, **(_dump(stated) if stated else {})}


def _dump(context: PodSecurityContext | SecurityContext) -> dict[str, Any]:
    return context.model_dump(by_alias=True, exclude_none=True, mode="json")
